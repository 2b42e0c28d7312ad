"""Two S3 servers on loopback: moto for the behaviour of a real store, and a scripted one for lost answers."""

from __future__ import annotations

import multiprocessing
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUCKET = "tidelake-tests"


@contextmanager
def moto_s3(*buckets: str) -> Iterator[dict[str, str]]:
    """Run moto on a free port and make the buckets; yields the storage options to reach it."""
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    # Moto looks for the object and puts it in two steps, so that under load two conditional puts may both succeed.
    put, one_at_a_time = S3Response.put_object, multiprocessing.Lock()

    def put_object(self: S3Response) -> Any:
        with one_at_a_time:
            return put(self)

    S3Response.put_object = put_object
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        for bucket in buckets or (BUCKET,):
            request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()
        yield storage_options(endpoint)
    finally:
        server.stop()
        S3Response.put_object = put


def storage_options(endpoint: str) -> dict[str, str]:
    """Options for a server on loopback."""
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "test-access-key",
        "secret_access_key": "test-secret-key",
    }


class ScriptedS3:
    """A bucket that answers puts by a script; once the script is used up it behaves.

    Steps: a status as `"503"` (no effect), `"503+"` (effect, then the status), `"reset"` and `"reset+"` (the connection
    drops, without or with effect), `"ok"`, `"ignore"` (the condition is ignored, as by stores that do not know it).
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.script: list[str] = []
        self.gets: list[str] = []
        self.puts = 0
        self.users: list[str] = []
        """What requests were signed with."""
        self.body = "<Error><Code>Scripted</Code></Error>"

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Run on a free port; yields the endpoint."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.serve_forever, 0.01)
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                running.result()
                server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                return

            def do_PUT(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                bucket.puts += 1
                bucket.users.append(self.headers.get("Authorization", ""))
                step = bucket.script.pop(0) if bucket.script else "ok"
                exclusive = self.headers.get("If-None-Match") == "*" and step != "ignore"
                taken = exclusive and self.path in bucket.objects
                if (step in ("ok", "ignore") or step.endswith("+")) and not taken:
                    bucket.objects[self.path] = data
                if step.startswith("reset"):
                    self.close_connection = True
                elif step in ("ok", "ignore"):
                    self._answer(412 if taken else 200, b"", {"ETag": '"x"'})
                else:
                    self._answer(int(step.rstrip("+")), bucket.body.encode())

            def do_GET(self) -> None:
                step = bucket.gets.pop(0) if bucket.gets else "ok"
                data = bucket.objects.get(self.path)
                if step != "ok":
                    self._answer(int(step), b"")
                elif data is None:
                    self._answer(404, b"")
                else:
                    stamp = {"ETag": '"x"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
                    self._answer(200, data, stamp)

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_DELETE(self) -> None:
                bucket.objects.pop(self.path, None)
                self._answer(204, b"")

            def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        return Handler
