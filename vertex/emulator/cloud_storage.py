"""Cloud Storage's JSON API: buckets and objects, with preconditions, ranges and resumable uploads.

Objects have one version, the live one. https://docs.cloud.google.com/storage/docs/json_api
"""

import base64
import dataclasses
import datetime
import functools
import hashlib
import json
import re
import secrets
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import google_crc32c

from vertex.emulator.api_error import ApiError, invalid, not_found
from vertex.emulator.artifact_registry import parse_multipart
from vertex.emulator.buckets import FolderBucket, FolderBuckets
from vertex.emulator.server import HttpAnswer, HttpRequest

_BUCKET = r"/storage/v1/b/(?P<bucket>[^/]+)"
_OBJECT = rf"{_BUCKET}/o/(?P<name>[^/]+)"
_TARGET = r"b/(?P<to_bucket>[^/]+)/o/(?P<to_name>[^/]+)"
_UPLOAD = rf"(?:/resumable)?/upload{_BUCKET}/o"
_PAGE = 1000
_MOST_SOURCES = 32
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]+)-([0-9]+)|\*)/([0-9]+|\*)")
_WRITABLE = (
    *("cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType"),
    *("metadata", "storageClass"),
)


@dataclasses.dataclass
class _Upload:
    """A resumable upload that has begun."""

    bucket: str
    attributes: dict[str, Any]
    query: Mapping[str, str]
    content: bytearray = dataclasses.field(default_factory=bytearray)


class CloudStorage:
    """A server of the buckets of a folder."""

    routes = (
        ("GET", "/storage/v1/b", "ListBuckets"),
        ("POST", "/storage/v1/b", "InsertBucket"),
        ("GET", _BUCKET, "GetBucket"),
        ("DELETE", _BUCKET, "DeleteBucket"),
        ("GET", rf"{_BUCKET}/iam", "GetBucketPolicy"),
        ("PUT", rf"{_BUCKET}/iam", "SetBucketPolicy"),
        ("GET", rf"{_BUCKET}/iam/testPermissions", "TestBucketPermissions"),
        ("GET", rf"{_BUCKET}/o", "ListObjects"),
        ("GET", f"(?:/download)?{_OBJECT}", "GetObject"),
        ("PATCH", _OBJECT, "PatchObject"),
        ("PUT", _OBJECT, "UpdateObject"),
        ("DELETE", _OBJECT, "DeleteObject"),
        ("POST", f"{_OBJECT}/compose", "ComposeObject"),
        ("POST", f"{_OBJECT}/copyTo/{_TARGET}", "CopyObject"),
        ("POST", f"{_OBJECT}/rewriteTo/{_TARGET}", "RewriteObject"),
        ("POST", _UPLOAD, "InsertObject"),
        ("PUT", _UPLOAD, "ContinueUpload"),
        ("DELETE", _UPLOAD, "CancelUpload"),
    )

    def __init__(
        self,
        buckets: FolderBuckets,
        location: str = "US-CENTRAL1",
        project: str = "",
        number_of: Callable[[str], str] = str,  # returns the number of a project
    ) -> None:
        self.buckets, self.location = buckets, location
        self._project, self._number_of = project, number_of
        self._projects: dict[str, str] = {}  # those of buckets that this process has made
        self._uploads: dict[str, _Upload] = {}
        # A checksum reads the whole content, so it is computed once for each generation.
        self._checksums = functools.lru_cache(maxsize=100_000)(self._compute_checksums)

    # Buckets

    def list_buckets(self, request: HttpRequest) -> dict[str, Any]:
        prefix = request.query.get("prefix", "")
        names = [name for name in self.buckets if name.startswith(prefix)]
        first, last, more = _page(request, len(names))
        return {
            "kind": "storage#buckets",
            "items": [self._describe_bucket(name) for name in names[first:last]],
            **more,
        }

    def insert_bucket(self, request: HttpRequest) -> dict[str, Any]:
        name = json.loads(request.body)["name"]
        self.buckets.make(name)
        self._projects[name] = request.query.get("project", self._project)
        return self._describe_bucket(name)

    def get_bucket(self, request: HttpRequest) -> dict[str, Any]:
        self.buckets[request.match["bucket"]]
        return self._describe_bucket(request.match["bucket"])

    def delete_bucket(self, request: HttpRequest) -> HttpAnswer:
        self.buckets.remove(request.match["bucket"])
        return HttpAnswer(204)

    def get_bucket_policy(self, request: HttpRequest) -> dict[str, Any]:
        """Return no bindings: the emulator checks no permissions."""
        self.buckets[request.match["bucket"]]
        return {"kind": "storage#policy", "version": 1, "bindings": []}

    def set_bucket_policy(self, request: HttpRequest) -> dict[str, Any]:
        """Return the policy; no permission depends on it."""
        self.buckets[request.match["bucket"]]
        return {"kind": "storage#policy", **json.loads(request.body)}

    def test_bucket_permissions(self, request: HttpRequest) -> dict[str, Any]:
        self.buckets[request.match["bucket"]]
        asked = request.values.get("permissions", [])
        return {"kind": "storage#testIamPermissionsResponse", "permissions": asked}

    # Objects

    def list_objects(self, request: HttpRequest) -> dict[str, Any]:
        """Return a page of objects, and of prefixes up to a delimiter, sorted by name."""
        query, bucket = request.query, self.buckets[request.match["bucket"]]
        glob = re.escape(query.get("matchGlob", "**")).replace(r"\*\*", ".*")
        pattern = re.compile(glob.replace(r"\*", "[^/]*").replace(r"\?", "[^/]"))
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        begin, end = query.get("startOffset", ""), query.get("endOffset", "")
        entries: dict[tuple[str, bool], None] = {}  # names, and whether each is a prefix
        for name in sorted(bucket):
            if not name.startswith(prefix) or not pattern.fullmatch(name):
                continue
            if name < begin or (end and name >= end):
                continue
            rest = name.removeprefix(prefix)
            head, found, tail = rest.partition(delimiter) if delimiter else (rest, "", "")
            if found and not tail and query.get("includeTrailingDelimiter", "").lower() == "true":
                entries[name, False] = None
            entries[f"{prefix}{head}{found}" if found else name, bool(found)] = None
        first, last, more = _page(request, len(entries))
        page = list(entries)[first:last]
        items = [self._describe(request.match["bucket"], name) for name, inner in page if not inner]
        prefixes = [name for name, inner in page if inner]
        listed = {"items": items, "prefixes": prefixes}
        return {"kind": "storage#objects", **{k: v for k, v in listed.items() if v}, **more}

    def get_object(self, request: HttpRequest) -> Any:
        described = self._find(request)
        if request.query.get("alt") != "media":
            return described
        content = self.buckets[request.match["bucket"]][_name(request)]
        headers = {
            "Content-Type": described["contentType"],
            "X-Goog-Generation": described["generation"],
            "X-Goog-Metageneration": described["metageneration"],
            "X-Goog-Hash": f"crc32c={described['crc32c']},md5={described['md5Hash']}",
        }
        return _cut_range(request.headers.get("Range", ""), content, headers)

    def insert_object(self, request: HttpRequest) -> Any:
        kind = request.query.get("uploadType", "multipart")
        bucket = request.match["bucket"]
        if kind == "resumable":
            attributes = json.loads(request.body or b"{}")
            if given := request.headers.get("X-Upload-Content-Type"):
                attributes.setdefault("contentType", given)
            attributes.setdefault("name", request.query.get("name"))
            number = secrets.token_hex(16)
            self.buckets[bucket]
            self._uploads[number] = _Upload(bucket, attributes, request.query)
            query = urllib.parse.urlencode({"uploadType": "resumable", "upload_id": number})
            location = f"http://{request.headers['Host']}/upload/storage/v1/b/{bucket}/o?{query}"
            return HttpAnswer(200, headers={"Location": location, "X-GUploader-UploadID": number})
        if kind == "media":
            attributes = {"name": request.query["name"]}
            attributes["contentType"] = request.headers.get("Content-Type")
            return self._write(request, bucket, attributes, request.body, request.query)
        description, media = parse_multipart(request)
        attributes = json.loads(description.get_payload(decode=True))
        attributes.setdefault("name", request.query.get("name"))
        attributes.setdefault("contentType", media.get_content_type())
        content = media.get_payload(decode=True)
        return self._write(request, bucket, attributes, content, request.query)

    def continue_upload(self, request: HttpRequest) -> Any:
        """Append a chunk; write the object with the last one."""
        upload = self._find_upload(request)
        given = request.headers.get("Content-Range", f"bytes */{len(request.body)}")
        match = _CONTENT_RANGE.fullmatch(given)
        if not match:
            raise invalid(f"Content-Range {given!r} is not valid")
        first, _, total = match.groups()
        if first is None and "Content-Range" not in request.headers:
            first = str(len(upload.content))
            total = str(len(upload.content) + len(request.body))
        if first is not None:
            if int(first) > len(upload.content):
                message = f"The first byte is {first}, but {len(upload.content)} have been received"
                raise ApiError("UNAVAILABLE", message)
            # A client that has lost an answer sends bytes again.
            upload.content[int(first) :] = request.body
        if total == "*" or len(upload.content) < int(total):
            received = {"Range": f"bytes=0-{len(upload.content) - 1}"} if upload.content else {}
            return HttpAnswer(308, headers=received)
        content = bytes(upload.content)
        answer = self._write(request, upload.bucket, upload.attributes, content, upload.query)
        del self._uploads[request.query["upload_id"]]
        return answer

    def cancel_upload(self, request: HttpRequest) -> HttpAnswer:
        self._find_upload(request)
        del self._uploads[request.query["upload_id"]]
        return HttpAnswer(499)

    def patch_object(self, request: HttpRequest) -> dict[str, Any]:
        """Change the attributes that the request gives; null removes one."""
        return self._set_attributes(request, keep=True)

    def update_object(self, request: HttpRequest) -> dict[str, Any]:
        """Replace all attributes."""
        return self._set_attributes(request, keep=False)

    def delete_object(self, request: HttpRequest) -> HttpAnswer:
        self._find(request)
        del self.buckets[request.match["bucket"]][_name(request)]
        return HttpAnswer(204)

    def compose_object(self, request: HttpRequest) -> dict[str, Any]:
        body, bucket = json.loads(request.body), self.buckets[request.match["bucket"]]
        sources = body["sourceObjects"]
        if not 1 <= len(sources) <= _MOST_SOURCES:
            raise invalid(f"The number of source components is not between 1 and {_MOST_SOURCES}")
        for source in sources:
            if source["name"] not in bucket:
                raise not_found(f"Object {source['name']}")
            wanted = source.get("objectPreconditions", {}).get("ifGenerationMatch")
            self._check({"ifGenerationMatch": wanted} if wanted else {}, bucket, source["name"])
        content = b"".join(bucket[source["name"]] for source in sources)
        attributes = {**body.get("destination", {}), "name": _name(request)}
        return self._write(request, request.match["bucket"], attributes, content, request.query)

    def copy_object(self, request: HttpRequest) -> dict[str, Any]:
        bucket, name = request.match["bucket"], _name(request)
        query = request.query
        wanted = {key.replace("ifSource", "if"): value for key, value in query.items()}
        wanted = {key: value for key, value in wanted.items() if key not in query}
        wanted |= {"generation": query["sourceGeneration"]} if "sourceGeneration" in query else {}
        source = self._describe_checked(bucket, name, wanted)
        given = json.loads(request.body or b"{}")
        kept = {key: source[key] for key in _WRITABLE if key in source}
        attributes = {**(given or kept), "name": urllib.parse.unquote(request.match["to_name"])}
        content = self.buckets[bucket][name]
        return self._write(request, request.match["to_bucket"], attributes, content, query)

    def rewrite_object(self, request: HttpRequest) -> dict[str, Any]:
        resource = self.copy_object(request)
        size = resource["size"]
        done = {"done": True, "objectSize": size, "totalBytesRewritten": size}
        return {"kind": "storage#rewriteResponse", **done, "resource": resource}

    def _write(
        self,
        request: HttpRequest,
        bucket_name: str,
        attributes: Mapping[str, Any],
        content: bytes,
        query: Mapping[str, str],
    ) -> dict[str, Any]:
        bucket, name = self.buckets[bucket_name], attributes.get("name")
        if not name:
            raise invalid("Required parameter: name")
        self._check(query, bucket, name)
        checksums = dict(zip(("md5Hash", "crc32c"), _checksums(content), strict=True))
        for key, computed in checksums.items():
            if attributes.get(key, computed) != computed:
                raise invalid(f'Provided {key} "{attributes[key]}" doesn\'t match {computed}.')
        bucket[name] = content
        kept = {key: attributes[key] for key in _WRITABLE if attributes.get(key) is not None}
        bucket.set_attributes(name, {**kept, "metageneration": 1})
        return self._describe(bucket_name, name)

    def _set_attributes(self, request: HttpRequest, *, keep: bool) -> dict[str, Any]:
        described, bucket = self._find(request), self.buckets[request.match["bucket"]]
        name, given = described["name"], json.loads(request.body)
        changed = {key: given[key] for key in _WRITABLE if key in given}
        if keep:
            before = {key: described[key] for key in _WRITABLE if key in described}
            if changed.get("metadata"):
                metadata = {**before.get("metadata", {}), **changed["metadata"]}
                changed["metadata"] = {k: v for k, v in metadata.items() if v is not None}
            changed = before | changed
        kept = {key: value for key, value in changed.items() if value is not None}
        number = int(described["metageneration"]) + 1
        bucket.set_attributes(name, {**kept, "metageneration": number})
        return self._describe(request.match["bucket"], name)

    def _find_upload(self, request: HttpRequest) -> _Upload:
        try:
            return self._uploads[request.query["upload_id"]]
        except KeyError:
            raise not_found("The upload") from None

    def _find(self, request: HttpRequest) -> dict[str, Any]:
        """Return the object that a request names, if its preconditions hold."""
        return self._describe_checked(request.match["bucket"], _name(request), request.query)

    def _describe_checked(
        self, bucket_name: str, name: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        bucket = self.buckets[bucket_name]
        if name not in bucket or query.get("generation") not in (
            None,
            str(bucket.generation(name)),
        ):
            raise ApiError("NOT_FOUND", f"No such object: {bucket_name}/{name}")
        self._check(query, bucket, name)
        return self._describe(bucket_name, name)

    @staticmethod
    def _check(query: Mapping[str, str], bucket: FolderBucket, name: str) -> None:
        """Raise ApiError unless the preconditions of a request hold for a name.

        https://docs.cloud.google.com/storage/docs/request-preconditions
        """
        exists = name in bucket
        attributes = bucket.attributes(name) if exists else {}
        found = {
            "Generation": bucket.generation(name) if exists else 0,
            "Metageneration": attributes.get("metageneration", 1) if exists else 0,
        }
        for kind, number in found.items():
            wanted, unwanted = query.get(f"if{kind}Match"), query.get(f"if{kind}NotMatch")
            if wanted is not None and int(wanted) != number:
                message = "At least one of the pre-conditions you specified did not hold."
                raise ApiError("FAILED_PRECONDITION", message, 412)
            if unwanted is not None and int(unwanted) == number:
                raise ApiError("FAILED_PRECONDITION", "Not Modified", 304)

    def _describe_bucket(self, name: str) -> dict[str, Any]:
        return {
            "kind": "storage#bucket",
            "id": name,
            "name": name,
            "projectNumber": self._number_of(self._projects.get(name, self._project)),
            "location": self.location,
            "locationType": "region",
            "storageClass": "STANDARD",
        }

    def _describe(self, bucket_name: str, name: str) -> dict[str, Any]:
        bucket = self.buckets[bucket_name]
        generation, size = bucket.generation(name), bucket.size(name)
        md5, crc32c = self._checksums(bucket_name, name, generation, size)
        attributes = {"metageneration": 1, **bucket.attributes(name)}
        updated = datetime.datetime.fromtimestamp(generation / 1e6, datetime.UTC)
        return {
            "kind": "storage#object",
            "id": f"{bucket_name}/{name}/{generation}",
            "bucket": bucket_name,
            "name": name,
            "size": str(size),
            "generation": str(generation),
            "contentType": "application/octet-stream",
            "storageClass": "STANDARD",
            "md5Hash": md5,
            "crc32c": crc32c,
            "etag": f"{generation}",
            "timeCreated": f"{updated:%Y-%m-%dT%H:%M:%S.%fZ}",
            "updated": f"{updated:%Y-%m-%dT%H:%M:%S.%fZ}",
            **attributes,
            "metageneration": str(attributes["metageneration"]),
        }

    def _compute_checksums(self, bucket: str, name: str, *_: int) -> tuple[str, str]:
        return _checksums(self.buckets[bucket][name])


def _checksums(content: bytes) -> tuple[str, str]:
    """Return the MD5 and the CRC32C of an object, in base64."""
    md5 = hashlib.md5(content, usedforsecurity=False).digest()
    crc32c = google_crc32c.value(content).to_bytes(4, "big")
    return base64.b64encode(md5).decode(), base64.b64encode(crc32c).decode()


def _name(request: HttpRequest) -> str:
    return urllib.parse.unquote(request.match["name"])


def _page(request: HttpRequest, count: int) -> tuple[int, int, dict[str, str]]:
    """Return the first and last index of a page, and its token of the next page."""
    first = int(request.query.get("pageToken", 0))
    last = first + min(_PAGE, int(request.query.get("maxResults", _PAGE)))
    return first, last, {"nextPageToken": str(last)} if last < count else {}


def _cut_range(given: str, content: bytes, headers: dict[str, str]) -> HttpAnswer:
    """Return a content, or the bytes of it that a Range header names."""
    match = _RANGE.fullmatch(given)
    if not match or match.groups() == ("", ""):
        return HttpAnswer(200, content, headers)
    size = len(content)
    if match[1]:
        first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
    else:
        first, last = max(size - int(match[2]), 0), size - 1
    if first > last:
        headers = {"Content-Range": f"bytes */{size}"}
        return HttpAnswer(416, b"The requested range cannot be satisfied.", headers)
    part = {**headers, "Content-Range": f"bytes {first}-{last}/{size}"}
    # The checksums are those of the whole object.
    return HttpAnswer(206, content[first : last + 1], part)
