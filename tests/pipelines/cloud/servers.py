"""What the loopback servers of these tests share: routes, faults, and errors as Google's."""

import http.server
import json
import re
import threading
from urllib.parse import parse_qs, unquote, urlsplit

from pipelines.emulator.server import RequestHandler


class ApiError(Exception):
    """An error that the server answers with."""

    def __init__(self, code, status, message):
        super().__init__(message)
        self.code, self.status, self.message = code, status, message


class DropError(ConnectionError):
    """The connection is closed without an answer."""


class Server:
    """Routes requests by method and path; a context manager on a port of 127.0.0.1.

    A subclass lists its routes as (method, pattern, name, function): the function takes the
    match, the query and the body, and returns bytes, JSON or None. `fail` and `drop` make the
    next requests of a name go wrong; with `after`, when they have had their effect.
    """

    routes = ()

    def __init__(self):
        self.requests = []
        self._faults = []
        self._lock = threading.RLock()
        handler = type("Handler", (RequestHandler,), {"emulator": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fail(self, name, code, status, message="", times=1):
        error = ApiError(code, status, message or status)
        self._faults += [(name, error, False)] * times

    def drop(self, name, times=1, after=False):
        self._faults += [(name, DropError(), after)] * times

    def names(self):
        """Names of all requests, in order."""
        return [name for name, _ in self.requests]

    def sent(self, name):
        """The parsed requests of a name."""
        return [request for other, request in self.requests if other == name]

    def answer(self, method, path, headers, body):
        url = urlsplit(path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        try:
            for wanted, pattern, name, function in self.routes:
                match = re.fullmatch(pattern, unquote(url.path))
                if wanted == method and match:
                    with self._lock:
                        return self._call(name, function, match, query, headers, body)
            raise ApiError(404, "NOT_FOUND", f"no route {method} {path}")
        except ApiError as error:
            content = {
                "error": {"code": error.code, "message": error.message, "status": error.status}
            }
            return error.code, "application/json", json.dumps(content).encode()

    def _call(self, name, function, match, query, headers, body):
        fault = next((one for one in self._faults if one[0] == name), None)
        if fault:
            self._faults.remove(fault)
            if not fault[2]:
                self.requests.append((name, fault[1]))
                raise fault[1]
        result = getattr(self, function)(match, query, headers, body)
        if fault:
            raise fault[1]
        if isinstance(result, bytes):
            return 200, "application/octet-stream", result
        if isinstance(result, str):
            return 200, "text/plain", result.encode()
        return 200, "application/json", json.dumps(result or {}).encode()
