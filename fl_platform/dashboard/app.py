"""The dashboard as a web application: GET only, for this machine only, read-only."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fl_platform.dashboard.store import Store
from fl_platform.dashboard.views import Views
from fl_platform.errors import UserError

STATIC = Path(__file__).parent / "static"
HOSTS = ["127.0.0.1", "localhost"]  # a page elsewhere whose name is made to point here sends its own name

MOST_WAITING = 8
"""Requests for tables and importances that may wait for one another; further ones are answered with 503."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class SafetyHeaders:
    """Adds ``HEADERS`` to every answer, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


def make_app(store: Store) -> Starlette:
    """The web application over a store: its page, its files and what it answers as JSON."""
    views = Views(store)
    answers = (views.overview, views.select, views.lines, views.metrics, views.run, views.partition, views.resources)
    queue = Queue()
    return Starlette(
        routes=[
            Route("/", _index, methods=["GET"]),
            *(Route(f"/api/{answer.__name__}", _endpoint(answer), methods=["GET"]) for answer in answers),
            *(
                Route(f"/api/{answer.__name__}", queue.endpoint(answer), methods=["GET"])
                for answer in (views.tables, views.importance)
            ),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[
            Middleware(SafetyHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
            Middleware(GZipMiddleware, minimum_size=10_000, compresslevel=1),
        ],
    )


async def _index(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


Answer = Callable[[dict[str, str]], dict[str, Any]]


class Queue:
    """Answers that take seconds and much memory, one after another in one thread, whose memory is used again."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "tables")
        self._waiting = 0

    def endpoint(self, answer: Answer) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            if self._waiting >= MOST_WAITING:
                body = _json({"error": f"{MOST_WAITING} tables are being made; try again in a moment"})
                return Response(body, 503, {"Retry-After": "1"}, media_type="application/json")
            self._waiting += 1
            try:
                loop, query = asyncio.get_running_loop(), dict(request.query_params)
                return await _response(loop.run_in_executor(self._thread, _answer, answer, query))
            finally:
                self._waiting -= 1

        return respond


def _endpoint(answer: Answer) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        return await _response(run_in_threadpool(_answer, answer, dict(request.query_params)))

    return respond


async def _response(work: Awaitable[tuple[int, bytes]]) -> Response:
    try:
        status, body = await work
    except asyncio.CancelledError:  # the server ends: nobody waits for the answer
        status, body = 503, _json({"error": "the dashboard is ending"})
    return Response(body, status, media_type="application/json")


def _answer(answer: Answer, query: dict[str, str]) -> tuple[int, bytes]:
    try:
        return 200, _json(answer(query))
    except UserError as error:
        return 400, _json({"error": str(error)})


def _json(values: dict[str, Any]) -> bytes:
    return orjson.dumps(values)
