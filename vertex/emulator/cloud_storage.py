"""The part of Cloud Storage's JSON API that the commands use.

https://docs.cloud.google.com/storage/docs/json_api
"""

import base64
import datetime
import hashlib
import json
import os
import pathlib
import re
import urllib.parse
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from vertex.emulator.api_error import ApiError, not_found
from vertex.emulator.artifact_registry import parse_multipart
from vertex.emulator.server import HttpRequest

_OBJECTS = r"/storage/v1/b/(?P<bucket>[^/]+)/o"
_PAGE = 1000
Buckets = Mapping[str, MutableMapping[str, bytes]]


class CloudStorage:
    """A server of buckets: mappings of object names to contents."""

    routes = (
        ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)", "GetBucket"),
        ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)/iam", "GetBucketPolicy"),
        ("GET", _OBJECTS, "ListObjects"),
        ("GET", f"(?:/download)?{_OBJECTS}/(?P<name>.+)", "GetObject"),
        ("DELETE", _OBJECTS + "/(?P<name>.+)", "DeleteObject"),
        ("POST", r"/upload/storage/v1/b/(?P<bucket>[^/]+)/o", "InsertObject"),
    )

    def __init__(self, buckets: Buckets, location: str = "US-CENTRAL1") -> None:
        self.buckets, self.location = buckets, location

    def get_bucket(self, request: HttpRequest) -> dict[str, Any]:
        self._find_bucket(request)
        return {"name": request.match["bucket"], "location": self.location}

    def get_bucket_policy(self, request: HttpRequest) -> dict[str, Any]:
        """Return no bindings: the emulator checks no permissions."""
        self._find_bucket(request)
        return {"version": 3, "bindings": []}

    def list_objects(self, request: HttpRequest) -> dict[str, Any]:
        """Return a page of the objects that match a prefix and a glob, sorted by name."""
        query, bucket = request.query, self._find_bucket(request)
        glob = re.escape(query.get("matchGlob", "**")).replace(r"\*\*", ".*")
        pattern = re.compile(glob.replace(r"\*", "[^/]*").replace(r"\?", "[^/]"))
        prefix = query.get("prefix", "")
        begin, end = query.get("startOffset", ""), query.get("endOffset", "")
        names = sorted(
            name
            for name in bucket
            if name.startswith(prefix) and pattern.fullmatch(name)
            if begin <= name and (not end or name < end)
        )
        if "delimiter" in query:
            inner = {name[: name.find("/", len(prefix)) + 1] for name in names}
            return {"prefixes": sorted(inner - {"", prefix})[:_PAGE]}
        first = int(query.get("pageToken", 0))
        last = first + min(_PAGE, int(query.get("maxResults", _PAGE)))
        answer: dict[str, Any] = {
            "items": [_describe_object(request, name, bucket[name]) for name in names[first:last]]
        }
        return {**answer, "nextPageToken": str(last)} if last < len(names) else answer

    def get_object(self, request: HttpRequest) -> Any:
        name, bucket = _object_name(request), self._find_bucket(request)
        if name not in bucket:
            raise not_found(name)
        if request.query.get("alt") == "media":
            return bucket[name]
        return _describe_object(request, name, bucket[name])

    def insert_object(self, request: HttpRequest) -> dict[str, Any]:
        description, content = (part.get_payload(decode=True) for part in parse_multipart(request))
        name, bucket = json.loads(description)["name"], self._find_bucket(request)
        if request.query.get("ifGenerationMatch") == "0" and name in bucket:
            raise ApiError("FAILED_PRECONDITION", f"{name} already exists", 412)
        bucket[name] = content
        return _describe_object(request, name, content)

    def delete_object(self, request: HttpRequest) -> dict[str, Any]:
        if self._find_bucket(request).pop(_object_name(request), None) is None:
            raise not_found(_object_name(request))
        return {}

    def _find_bucket(self, request: HttpRequest) -> MutableMapping[str, bytes]:
        if request.match["bucket"] not in self.buckets:
            raise ApiError("NOT_FOUND", "The specified bucket does not exist.")
        return self.buckets[request.match["bucket"]]


class FolderBuckets(dict[str, MutableMapping[str, bytes]]):
    """Buckets that are subfolders of a folder; every bucket with a valid name exists."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def __missing__(self, bucket: str) -> MutableMapping[str, bytes]:
        return _FolderBucket(self._folder / bucket)

    def __contains__(self, bucket: object) -> bool:
        return "/" not in str(bucket) and str(bucket) not in (".", "..")


class _FolderBucket(MutableMapping[str, bytes]):
    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except OSError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, content: bytes) -> None:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def __delitem__(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except OSError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        for folder, _, names in os.walk(self._folder, followlinks=True):
            relative = pathlib.Path(folder).relative_to(self._folder)
            yield from ((relative / name).as_posix() for name in sorted(names))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _path(self, name: str) -> pathlib.Path:
        if ".." in pathlib.PurePosixPath(name).parts or name.startswith("/"):
            raise ApiError("INVALID_ARGUMENT", f"{name!r} is not the name of an object")
        return self._folder / name


def _object_name(request: HttpRequest) -> str:
    return urllib.parse.unquote(request.match["name"])


def _describe_object(request: HttpRequest, name: str, content: bytes) -> dict[str, Any]:
    updated = datetime.datetime.now(datetime.UTC).isoformat()
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    return {
        "bucket": request.match["bucket"],
        "name": name,
        "size": str(len(content)),
        "generation": "1",
        "md5Hash": base64.b64encode(md5).decode(),
        "updated": updated,
    }
