"""Serving the dashboard on this machine's loopback address."""

import errno
import socket
import threading
import webbrowser

import uvicorn

from fl_platform.dashboard.app import make_app
from fl_platform.dashboard.store import Store
from fl_platform.errors import UserError

HOST = "127.0.0.1"
_LONGEST_REQUEST = 1 << 20  # a chart of a thousand runs names them all


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
    config = uvicorn.Config(
        make_app(store),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        h11_max_incomplete_event_size=_LONGEST_REQUEST,
        http="h11",
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
