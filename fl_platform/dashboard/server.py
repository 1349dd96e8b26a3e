"""Serving the dashboard on this machine's loopback address."""

import asyncio
import errno
import socket
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fl_platform.dashboard.app import make_app
from fl_platform.dashboard.store import Store
from fl_platform.errors import UserError

HOST = "127.0.0.1"
REQUEST_SECONDS = 30.0
"""A connection that has not sent a whole request by then is closed."""
MOST_CONNECTIONS = 128
"""Requests on further connections are answered with 503."""
_LONGEST_REQUEST = 1 << 20  # a chart of a thousand runs names them all


class TimedProtocol(H11Protocol):
    """Closes connections that send nothing, or a request too slowly; uvicorn only limits the pause after an answer."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self._close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:  # a request is being answered
            self._cancel()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        self.transport.close()


def bind(port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # a browser that comes before the server is up waits instead of being refused
    except OSError as error:
        listener.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise UserError(f"--port {port} {why}; give another, or 0 for any free one") from None
    return listener


def make_server(store: Store) -> uvicorn.Server:
    """A server of the application, with bounds on requests, connections and time."""
    config = uvicorn.Config(
        make_app(store),
        log_config=None,  # uvicorn's would close the handlers of this process, and absl's then closes stderr
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        h11_max_incomplete_event_size=_LONGEST_REQUEST,
        http=TimedProtocol,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(store: Store, port: int, opens_browser: bool) -> None:
    """Serve until Ctrl-C."""
    listener = bind(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}/"
    print(f"dashboard of {store.root}: {address} (Ctrl-C ends it)", flush=True)
    store.start()
    if opens_browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    try:
        make_server(store).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # uvicorn raises the signal again once it has shut down
    finally:
        store.close()
        listener.close()


@contextmanager
def served(root: Path) -> Iterator[tuple[str, Store]]:
    """Serve a directory of runs from a thread of this process; gives the address and the store."""
    store = Store(root)
    store.look()
    listener = bind(0)
    server = make_server(store)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    store.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://{HOST}:{listener.getsockname()[1]}", store
    finally:
        server.should_exit = True
        thread.join()
        store.close()
        listener.close()
