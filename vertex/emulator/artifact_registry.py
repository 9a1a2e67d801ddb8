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
from vertex.emulator.field_rules import refuse, refuse_state
from vertex.emulator.messages import id_of
from vertex.emulator.resource_store import FolderStore
from vertex.emulator.server import HttpRequest

REPOSITORY = "/my-project/pipelines"
_PACKAGES = rf"(?:{REPOSITORY}|/v1/projects/[^/]+/locations/[^/]+/repositories/pipelines)/packages"
_PACKAGE = rf"{_PACKAGES}/(?P<package>[^/]+)"
_NAME = re.compile("[a-z0-9][a-z0-9-]{3,127}")
_TAG = re.compile(r"[a-zA-Z0-9\-._~:@+]{1,128}")
_MAX_TAGS = 8


class ArtifactRegistry:
    """A store of compiled pipelines, which a folder keeps after this process."""

    routes = (
        ("POST", f"{REPOSITORY}/?", "Upload"),
        ("GET", _PACKAGES, "ListPackages"),
        ("GET", _PACKAGE, "GetPackage"),
        ("DELETE", _PACKAGE, "DeletePackage"),
        ("GET", _PACKAGE + "/versions", "ListVersions"),
        ("DELETE", _PACKAGE + r"/versions/(?P<version>[^/]+)", "DeleteVersion"),
        ("GET", _PACKAGE + "/tags", "ListTags"),
        ("DELETE", _PACKAGE + r"/tags/(?P<tag>[^/?]+)", "DeleteTag"),
        ("GET", _PACKAGE + r"/versions/(?P<version>[^/]+)", "GetVersion"),
        ("GET", _PACKAGE + r"/tags/(?P<tag>[^/?]+)", "GetTag"),
        ("POST", _PACKAGE + r"/tags", "CreateTag"),
        ("PATCH", _PACKAGE + r"/tags/(?P<tag>[^/?]+)", "UpdateTag"),
        ("GET", REPOSITORY + r"/(?P<package>[^/]+)/(?P<tag>[^/]+)", "Download"),
    )

    def __init__(self, folder: pathlib.Path | None = None) -> None:
        # By name, the content of each version and the version of each tag.
        self.packages: MutableMapping[str, Any] = {}
        self._folder = folder
        if folder:
            self.packages = FolderStore(folder, "packages", json.loads, json.dumps)

    def upload(self, request: HttpRequest) -> str:
        parts = parse_form(request)
        content = parts["content"].decode()
        tags = parts["tags"].decode().split(",") if parts.get("tags") else []
        package = content.partition("\n  name: ")[2].partition("\n")[0]
        check_names(package, tags)
        version = f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"
        stored = self.packages.get(package, {"versions": {}, "tags": {}})
        stored["versions"][version] = content
        stored["tags"].update(dict.fromkeys(tags, version))
        self.packages[package] = stored
        return f"{package}/{version}"

    def list_packages(self, request: HttpRequest) -> dict[str, Any]:
        path, names = request.match.string, sorted(self.packages)
        if self._folder:
            names = sorted(file.stem for file in self._folder.glob("*.json"))
        return {"packages": [{"name": _resource(f"{path}/{name}")} for name in names]}

    def get_package(self, request: HttpRequest) -> dict[str, Any]:
        self._find_package(request)
        return {"name": _resource(request.match.string)}

    def delete_package(self, request: HttpRequest) -> dict[str, Any]:
        self._find_package(request)
        del self.packages[request.match["package"]]
        return {"name": f"{_resource(request.match.string)}/operations/delete", "done": True}

    def list_versions(self, request: HttpRequest) -> dict[str, Any]:
        path, package = request.match.string, self._find_package(request)
        return {"versions": [{"name": _resource(f"{path}/{name}")} for name in package["versions"]]}

    def delete_version(self, request: HttpRequest) -> dict[str, Any]:
        """Delete a version with its tags, as force=true does; without it, none that has tags."""
        version, package = request.match["version"], self._find_package(request)
        self.get_version(request)
        tagged = [tag for tag, target in package["tags"].items() if target == version]
        keeps = tagged and request.query.get("force") != "true"
        refuse_state(keeps, f"{version} has the tags {', '.join(tagged)}; delete them first")
        del package["versions"][version]
        for tag in tagged:
            del package["tags"][tag]
        self.packages[request.match["package"]] = package
        return {"name": f"{_resource(request.match.string)}/operations/delete", "done": True}

    def list_tags(self, request: HttpRequest) -> dict[str, Any]:
        path, tags = request.match.string, self._find_package(request)["tags"]
        version = path.removesuffix("/tags") + "/versions/"
        return {
            "tags": [
                {"name": _resource(f"{path}/{tag}"), "version": _resource(f"{version}{target}")}
                for tag, target in tags.items()
            ]
        }

    def delete_tag(self, request: HttpRequest) -> dict[str, Any]:
        package = self._find_package(request)
        del self._find_tags(request)[request.match["tag"]]
        package["tags"].pop(request.match["tag"], None)
        self.packages[request.match["package"]] = package
        return {}

    def get_version(self, request: HttpRequest) -> dict[str, Any]:
        version = urllib.parse.unquote(request.match["version"])
        if version not in self._find_package(request)["versions"]:
            raise not_found(version)
        return {"name": _resource(request.match.string)}

    def get_tag(self, request: HttpRequest) -> dict[str, Any]:
        return self._describe_tag(request, self._find_tags(request)[request.match["tag"]])

    def create_tag(self, request: HttpRequest) -> dict[str, Any]:
        return self._set_tag(request, request.query["tagId"])

    def update_tag(self, request: HttpRequest) -> dict[str, Any]:
        self._find_tags(request)
        return self._set_tag(request, request.match["tag"])

    def download(self, request: HttpRequest) -> bytes:
        """Return the content of a tag, or of a version."""
        named, package = request.match["tag"], self._find_package(request)
        version = named if named in package["versions"] else self._find_tags(request)[named]
        return str(package["versions"][version]).encode()

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
        path = request.match.string.partition("/tags")[0]
        return {
            "name": _resource(request.match.string),
            "version": _resource(f"{path}/versions/{version}"),
        }


def _resource(path: str) -> str:
    """Return the name of the resource at a path."""
    return urllib.parse.unquote(path).removeprefix("/v1/")


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
