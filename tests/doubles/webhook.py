"""A real HTTP server on the loopback address that keeps what is posted to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "a-topic-nobody-guesses"


@dataclass(frozen=True)
class Post:
    """One request."""

    path: str
    headers: dict[str, str]
    body: str


@dataclass
class Webhook:
    """What has arrived, and how to answer."""

    url: str
    posts: list[Post] = field(default_factory=list)
    status: int = 200
    held: threading.Event | None = None
    """No answer comes before it is set."""


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Run the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            hook.posts.append(Post(self.path, dict(self.headers), body))
            if hook.held:
                hook.held.wait()
            self.send_response(hook.status)
            if hook.status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook = Webhook(f"http://127.0.0.1:{server.server_port}/{SECRET}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hook
    finally:
        if hook.held:
            hook.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
