"""Conversion of REST requests to the protos of google.cloud.aiplatform.v1.

The path and verb of each method come from the REST transports of google-cloud-aiplatform,
which are generated from the API's google.api.http annotations.
"""

import base64
import dataclasses
import functools
import importlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from google.longrunning import operations_pb2
from google.protobuf import json_format

from vertex.emulator.api_error import invalid
from vertex.emulator.messages import to_snake_case

SERVICES = ("Endpoint", "Job", "Metadata", "Model", "Pipeline", "Prediction", "Schedule")
"""Services of google.cloud.aiplatform.v1."""
_OPERATIONS = "google.longrunning.Operations"
_VARIABLE = re.compile(r"\{([\w.]+)=([^}]+)\}")


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of a service."""

    service: str  # the full name, as in gRPC
    name: str
    request: Any  # type of the request: a proto message, or proto-plus's wrapper of one
    # HTTP verb, pattern of the path, and field that the body fills (* for all).
    paths: tuple[tuple[str, re.Pattern[str], str], ...]

    def parse(self, verb: str, url: str, body: bytes) -> Any | None:
        """Convert a REST request to this method's; return None if it is for another method.

        Raise ApiError if the URL matches, but the content does not.
        """
        parts = urlsplit(url)
        for wanted, pattern, field in self.paths:
            match = pattern.fullmatch(unquote(parts.path)) if verb == wanted else None
            if match:
                return self._build_request(match.groupdict(), parse_qs(parts.query), field, body)
        return None

    def _build_request(
        self, path: Mapping[str, str], query: Mapping[str, list[str]], field: str, body: bytes
    ) -> Any:
        try:
            if self.name == "RawPredict":  # Its body is the body of the model's request.
                data = base64.b64encode(body).decode()
                content = {"httpBody": {"data": data, "contentType": "application/json"}}
            else:
                content = json.loads(body or b"{}") if field else {}
            if not isinstance(content, dict):
                raise ValueError("Root element must be a message.")
            document: dict[str, Any] = content if field in ("*", "") else {field: content}
            for name, values in query.items():
                value: Any = {"true": True, "false": False}.get(values[-1], values[-1])
                if name.lower().endswith("mask"):
                    # Google accepts both cases; protobuf's JSON parser only this one.
                    value = re.sub("_([a-z])", lambda letter: letter[1].upper(), values[-1])
                if not name.startswith("$"):
                    _put(document, name, value)
            for name, value in path.items():
                _put(document, name.replace("__", "."), value)
            request = self.request()
            json_format.ParseDict(document, getattr(request, "_pb", request))
        # Any error: the parsers raise many types for malformed content.
        except Exception as error:
            raise invalid(f"Invalid JSON payload received. {error}") from None
        return request


@functools.cache
def load_methods() -> tuple[Method, ...]:
    return tuple(_read_methods())


def _read_methods() -> Iterator[Method]:
    from google.cloud import resourcemanager_v3
    from google.cloud.aiplatform_v1 import types as vertex_types

    names = [f"google.cloud.aiplatform.v1.{service}Service" for service in SERVICES]
    for full in (*names, "google.cloud.resourcemanager.v3.Projects"):
        package, _, service = full.rpartition(".")
        types = vertex_types if full in names else resourcemanager_v3
        folder = package.replace(".v", "_v")
        module = f"{folder}.services.{to_snake_case(service)}.transports.rest_base"
        rules = vars(getattr(importlib.import_module(module), f"_Base{service}RestTransport"))
        for attribute, rule in rules.items():
            name = attribute.removeprefix("_Base")
            request = getattr(types, f"{name}Request", None)
            if name in ("GetOperation", "ListOperations"):
                request = getattr(operations_pb2, f"{name}Request")
            # Bidirectional streams have no path.
            if request and hasattr(rule, "_get_http_options"):
                paths = tuple(map(_compile_path, rule._get_http_options()))
                is_operation = name in ("GetOperation", "ListOperations")
                yield Method(_OPERATIONS if is_operation else full, name, request, paths)


def _compile_path(option: Mapping[str, str]) -> tuple[str, re.Pattern[str], str]:
    pattern, end = "", 0
    uri = option["uri"]
    for match in _VARIABLE.finditer(uri):
        inner = re.escape(match[2]).replace(r"\*\*", ".+").replace(r"\*", "[^/:]+")
        name = match[1].replace(".", "__")
        pattern += f"{re.escape(uri[end : match.start()])}(?P<{name}>{inner})"
        end = match.end()
    pattern += re.escape(uri[end:])
    return option["method"].upper(), re.compile(pattern), option.get("body", "")


def _put(document: dict[str, Any], name: str, value: Any) -> None:
    *parents, last = name.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[last] = value


def to_json(message: Any) -> dict[str, Any]:
    """Return a message in the JSON of the REST API; {} for None."""
    if message is None:
        return {}
    return json_format.MessageToDict(getattr(message, "_pb", message))
