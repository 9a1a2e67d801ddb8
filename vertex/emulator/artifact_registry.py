"""Artifact Registry's repository of pipelines: packages, versions named by digest, and tags.

https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/pipelines/create-pipeline-template
"""

import email
import hashlib
import json
import pathlib
import re
import urllib.parse
from collections.abc import MutableMapping, Sequence
from typing import Any

from vertex.emulator.api_error import not_found
from vertex.emulator.field_rules import refuse
from vertex.emulator.messages import id_of
from vertex.emulator.resource_store import FolderStore
from vertex.emulator.server import HttpRequest

REPOSITORY = "/my-project/pipelines"
_PACKAGE = REPOSITORY + r"/packages/(?P<package>[^/]+)"
_NAME = re.compile("[a-z0-9][a-z0-9-]{3,127}")
_TAG = re.compile(r"[a-zA-Z0-9\-._~:@+]{1,128}")
_MAX_TAGS = 8


class ArtifactRegistry:
    """A store of compiled pipelines, which a folder keeps after this process."""

    routes = (
        ("POST", REPOSITORY, "Upload"),
        ("GET", _PACKAGE + r"/versions/(?P<version>[^/]+)", "GetVersion"),
        ("GET", _PACKAGE + r"/tags/(?P<tag>[^/?]+)", "GetTag"),
        ("POST", _PACKAGE + r"/tags", "CreateTag"),
        ("PATCH", _PACKAGE + r"/tags/(?P<tag>[^/?]+)", "UpdateTag"),
        ("GET", REPOSITORY + r"/(?P<package>[^/]+)/(?P<tag>[^/]+)", "Download"),
    )

    def __init__(self, folder: pathlib.Path | None = None) -> None:
        # By name, the content of each version and the version of each tag.
        self.packages: MutableMapping[str, Any] = {}
        if folder:
            self.packages = FolderStore(folder, "packages", json.loads, json.dumps)

    def upload(self, request: HttpRequest) -> str:
        parts = parse_form(request)
        content, tags = parts["content"].decode(), parts["tags"].decode().split(",")
        package = content.partition("\n  name: ")[2].partition("\n")[0]
        check_names(package, tags)
        version = f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"
        stored = self.packages.get(package, {"versions": {}, "tags": {}})
        stored["versions"][version] = content
        stored["tags"].update(dict.fromkeys(tags, version))
        self.packages[package] = stored
        return f"{package}/{version}"

    def get_version(self, request: HttpRequest) -> dict[str, Any]:
        version = urllib.parse.unquote(request.match["version"])
        if version not in self._find_package(request)["versions"]:
            raise not_found(version)
        return {"name": request.match.string}

    def get_tag(self, request: HttpRequest) -> dict[str, Any]:
        return self._describe_tag(request, self._find_tags(request)[request.match["tag"]])

    def create_tag(self, request: HttpRequest) -> dict[str, Any]:
        return self._set_tag(request, request.query["tagId"])

    def update_tag(self, request: HttpRequest) -> dict[str, Any]:
        self._find_tags(request)
        return self._set_tag(request, request.match["tag"])

    def download(self, request: HttpRequest) -> bytes:
        version = self._find_tags(request)[request.match["tag"]]
        return str(self._find_package(request)["versions"][version]).encode()

    def _find_package(self, request: HttpRequest) -> dict[str, Any]:
        package = request.match["package"]
        if package not in self.packages:
            raise not_found(package)
        return self.packages[package]

    def _find_tags(self, request: HttpRequest) -> dict[str, str]:
        tags = self._find_package(request)["tags"]
        if request.match["tag"] not in tags:
            raise not_found(request.match["tag"])
        return tags

    def _set_tag(self, request: HttpRequest, tag: str) -> dict[str, Any]:
        package, version = self._find_package(request), id_of(json.loads(request.body)["version"])
        package["tags"][tag] = version
        self.packages[request.match["package"]] = package
        return self._describe_tag(request, version)

    def _describe_tag(self, request: HttpRequest, version: str) -> dict[str, Any]:
        return {"version": f"packages/{request.match['package']}/versions/{version}"}


def check_names(package: str, tags: Sequence[str]) -> None:
    """Refuse an upload with a malformed name of a package or of a tag, or too many tags."""
    form = "4 to 128 of a-z, 0-9 and -"
    refuse(not _NAME.fullmatch(package), f"package name {package!r} is not {form}")
    refuse(len(tags) > _MAX_TAGS, f"{len(tags)} tags; at most {_MAX_TAGS} are allowed")
    for tag in tags:
        refuse(not _TAG.fullmatch(tag), f"{tag!r} is not a tag")


def parse_multipart(request: HttpRequest) -> list[Any]:
    """Return the parts of a multipart body."""
    kind = request.headers["Content-Type"].encode()
    return list(email.message_from_bytes(b"Content-Type: " + kind + b"\n\n" + request.body).walk())[
        1:
    ]


def parse_form(request: HttpRequest) -> dict[str, bytes]:
    """Return the fields of a multipart form, by name."""
    return {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
        for part in parse_multipart(request)
    }
