"""A small HTTP server on the loopback that notes what is posted to it and gives the answer that a test sets."""

from __future__ import annotations

import json
import threading  # noqa: TID251 - a server beside the test
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(slots=True)
class ReportServer:
    """What was posted, and the answer to it."""

    url: str = ""
    status: int = 200
    answer: bytes = b'{"result":"success"}'
    location: str | None = None
    delay: threading.Event | None = None
    """Answers only once this is set."""
    posted: list[dict[str, Any]] = field(default_factory=list)
    types: list[str] = field(default_factory=list)


@contextmanager
def report_server() -> Iterator[ReportServer]:
    """Run one for the time of a test."""
    state = ReportServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.posted.append(json.loads(body))
            state.types.append(self.headers["Content-Type"].partition(";")[0])
            if state.delay is not None:
                state.delay.wait(10)
            self.send_response(state.status)
            if state.location:
                self.send_header("Location", state.location)
            self.send_header("Content-Length", str(len(state.answer)))
            self.end_headers()
            self.wfile.write(state.answer)

        def do_GET(self) -> None:
            state.posted.append({"method": "GET"})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"result":"success"}')

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/done"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
