"""Record requests to Google Cloud and their answers, from which `first-hour` writes its bundle.

VERTEX_RECORD_REQUESTS names a file, to which each exchange is appended as a line of JSON. Calls by
gRPC are recorded in the form of REST. No headers are recorded: they hold the access token.
"""

import contextlib
import functools
import importlib
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

VARIABLE = "VERTEX_RECORD_REQUESTS"
_LONGEST_TEXT = 1000
_lock = threading.Lock()


def record_session(session: Any) -> None:
    """Record the exchanges of a requests.Session, if the variable is set."""
    if os.environ.get(VARIABLE):
        session.send = functools.partial(_send, session.send)


def record_channel(channel: Any, host: str) -> Any:
    """Return a gRPC channel to `host` that records its calls, if the variable is set."""
    if not os.environ.get(VARIABLE):
        return channel
    import grpc
    from google.api_core import exceptions

    class Recorder(grpc.UnaryUnaryClientInterceptor):
        """An interceptor that records each call."""

        def intercept_unary_unary(self, proceed: Any, details: Any, request: Any) -> Any:
            start, call = time.time(), proceed(details, request)
            error = call.exception()
            status = int(exceptions.from_grpc_error(error).code or 0) if error else 200
            if error:
                why = {"status": error.code().name, "message": error.details(), "code": status}
            answer = {"error": why} if error else _to_json(call.result())
            exchange = _to_rest(details.method.rpartition("/"), request)
            _append(start, host=host, **exchange, status=status, answer=answer)
            return call

    return grpc.intercept_channel(channel, Recorder())


def recorded_transport(kind: Any, transport: str) -> Any:
    """Return `transport`; if it is grpc, and the variable is set, one whose channel records."""
    if transport != "grpc" or not os.environ.get(VARIABLE):
        return transport
    transport_class = kind.get_transport_class(transport)

    def create_channel(host: str, **options: Any) -> Any:
        return record_channel(transport_class.create_channel(host, **options), host)

    return functools.partial(transport_class, channel=create_channel)


def _send(send: Any, request: Any, **options: Any) -> Any:
    start, parts = time.time(), urlsplit(request.url)
    exchange: dict[str, Any] = {
        "host": parts.netloc,
        "call": f"{request.method} {unquote(parts.path)}",
        "query": {key: value for key, value in parse_qsl(parts.query) if key[0] != "$"} or None,
        "body": _parse(request.body, request.headers),
    }
    try:
        response = send(request, **options)
    except Exception as error:
        _append(start, **exchange, status=0, answer=f"{type(error).__name__}: {error}")
        raise
    content = None if options.get("stream") else response.content
    answer = _parse(content, response.headers)
    _append(start, **exchange, status=response.status_code, answer=answer)
    return response


def _append(start: float, **exchange: Any) -> None:
    line = json.dumps({"at": start, "seconds": round(time.time() - start, 3), **exchange})
    with _lock, Path(os.environ[VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _parse(content: Any, headers: Any) -> Any:
    """Return JSON, or a short text; for other content, its length and type."""
    if not content:
        return None
    kind = headers.get("Content-Type", "").partition(";")[0]
    if "json" in kind:
        with contextlib.suppress(ValueError):
            return json.loads(content) or None
    if not isinstance(content, str | bytes):
        return f"a stream of {kind}"
    text = content if isinstance(content, str) else content.decode(errors="replace")
    short = kind.startswith("text/") and len(text) <= _LONGEST_TEXT
    return text if short else f"{len(content)} bytes of {kind}"


def _to_json(message: Any) -> Any:
    from google.protobuf import json_format

    message = getattr(message, "_pb", message)
    try:
        return json_format.MessageToDict(message) or None
    except TypeError as error:
        # It has a google.protobuf.Any of a type that only newer clients know.
        return f"{error}: {message}"


def _to_rest(method: tuple[str, str, str], message: Any) -> dict[str, Any]:
    """Return a gRPC request as REST's transport of the same service would send it."""
    from google.api_core import path_template, rest_helpers

    service, name = method[0].rpartition(".")[2], method[2]
    if service == "Operations":
        path = f"{message.name}/operations" if name == "ListOperations" else message.name
        return {"call": f"GET /v1/{path}", "query": None, "body": None}
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", service).lower()
    module = f"google.cloud.aiplatform_v1.services.{folder}.transports.rest_base"
    rules = getattr(importlib.import_module(module), f"_Base{service}RestTransport")
    options = getattr(rules, f"_Base{name}")._get_http_options()
    request = path_template.transcode(options, message=getattr(message, "_pb", message))
    query = rest_helpers.flatten_query_params(_to_json(request["query_params"]), strict=True)
    return {
        "call": f"{request['method'].upper()} {request['uri']}",
        "query": dict(query) or None,
        "body": _to_json(request["body"]) if "body" in request else None,
    }
