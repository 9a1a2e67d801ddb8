"""Artifact Registry's repository of pipelines, and Cloud Storage, of this machine for tests."""

import datetime
import email
import hashlib
import json
from urllib.parse import unquote

from tests.pipelines.vertex.servers import ApiError, Server

REPOSITORY = "/my-project/pipelines"
PACKAGE = REPOSITORY + r"/packages/(?P<package>[^/]+)"


class RegistryServer(Server):
    """Artifact Registry for KFP: packages, versions named by their content, and tags."""

    routes = (
        ("POST", REPOSITORY, "Upload", "upload"),
        ("GET", PACKAGE + r"/versions/(?P<version>[^/]+)", "GetVersion", "get_version"),
        ("GET", PACKAGE + r"/tags/(?P<tag>[^/?]+)", "GetTag", "get_tag"),
        ("POST", PACKAGE + r"/tags", "CreateTag", "create_tag"),
        ("PATCH", PACKAGE + r"/tags/(?P<tag>[^/?]+)", "UpdateTag", "update_tag"),
        ("GET", REPOSITORY + r"/(?P<package>[^/]+)/(?P<tag>[^/]+)", "Download", "download"),
    )

    def __init__(self):
        super().__init__()
        self.packages = {}

    @property
    def repository(self):
        return f"{self.url}{REPOSITORY}"

    def upload(self, match, query, headers, body):
        parts = _parts(headers["Content-Type"], body)
        content, tags = parts["content"], parts["tags"].decode().split(",")
        self.requests.append(("Upload", tags))
        text = content.decode()
        package = text.partition("\n  name: ")[2].partition("\n")[0]
        version = f"sha256:{hashlib.sha256(content).hexdigest()}"
        stored = self.packages.setdefault(package, {"versions": {}, "tags": {}})
        stored["versions"][version] = content
        stored["tags"].update(dict.fromkeys(tags, version))
        return f"{package}/{version}"

    def get_version(self, match, query, headers, body):
        self.requests.append(("GetVersion", match["version"]))
        if unquote(match["version"]) not in self._package(match)["versions"]:
            raise ApiError(404, "NOT_FOUND", "no such version")
        return {"name": match.string}

    def get_tag(self, match, query, headers, body):
        self.requests.append(("GetTag", match["tag"]))
        return self._tag(match["package"], self._tags(match)[match["tag"]])

    def create_tag(self, match, query, headers, body):
        self.requests.append(("CreateTag", query["tagId"]))
        version = json.loads(body)["version"].rpartition("/")[2]
        self._package(match)["tags"][query["tagId"]] = version
        return self._tag(match["package"], version)

    def update_tag(self, match, query, headers, body):
        self.requests.append(("UpdateTag", match["tag"]))
        version = json.loads(body)["version"].rpartition("/")[2]
        self._tags(match)[match["tag"]] = version
        return self._tag(match["package"], version)

    def download(self, match, query, headers, body):
        self.requests.append(("Download", match["tag"]))
        return self._package(match)["versions"][self._tags(match)[match["tag"]]]

    def _package(self, match):
        if match["package"] not in self.packages:
            raise ApiError(404, "NOT_FOUND", "no such package")
        return self.packages[match["package"]]

    def _tags(self, match):
        tags = self._package(match)["tags"]
        if match["tag"] not in tags:
            raise ApiError(404, "NOT_FOUND", "no such tag")
        return tags

    def _tag(self, package, version):
        return {"version": f"packages/{package}/versions/{version}"}


class StorageServer(Server):
    """The part of Cloud Storage's JSON API that these tests need."""

    routes = (
        ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)", "GetBucket", "get_bucket"),
        ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)/o", "ListObjects", "list_objects"),
        ("GET", r"/storage/v1/b/(?P<bucket>[^/]+)/o/(?P<name>.+)", "GetObject", "get_object"),
        ("DELETE", r"/storage/v1/b/(?P<bucket>[^/]+)/o/(?P<name>.+)", "DeleteObject", "delete"),
        ("POST", r"/upload/storage/v1/b/(?P<bucket>[^/]+)/o", "InsertObject", "insert"),
    )

    def __init__(self):
        super().__init__()
        self.buckets = {}
        self.location = "US-CENTRAL1"

    def get_bucket(self, match, query, headers, body):
        self.requests.append(("GetBucket", match["bucket"]))
        self._bucket(match)
        return {"name": match["bucket"], "location": self.location}

    def list_objects(self, match, query, headers, body):
        self.requests.append(("ListObjects", query.get("prefix", "")))
        found = [
            _object(match["bucket"], name, content)
            for name, content in self._bucket(match).items()
            if name.startswith(query.get("prefix", ""))
        ]
        return {"items": found}

    def get_object(self, match, query, headers, body):
        name = unquote(match["name"])
        self.requests.append(("GetObject", name))
        bucket = self._bucket(match)
        if name not in bucket:
            raise ApiError(404, "NOT_FOUND", f"no such object {name}")
        if query.get("alt") == "media":
            return bucket[name]
        return _object(match["bucket"], name, bucket[name])

    def insert(self, match, query, headers, body):
        parts = list(_multipart(headers["Content-Type"], body))
        name = json.loads(parts[0].get_payload(decode=True))["name"]
        self.requests.append(("InsertObject", name))
        bucket = self._bucket(match)
        if query.get("ifGenerationMatch") == "0" and name in bucket:
            raise ApiError(412, "FAILED_PRECONDITION", "it is there")
        bucket[name] = parts[1].get_payload(decode=True)
        return _object(match["bucket"], name, bucket[name])

    def delete(self, match, query, headers, body):
        name = unquote(match["name"])
        self.requests.append(("DeleteObject", name))
        if self._bucket(match).pop(name, None) is None:
            raise ApiError(404, "NOT_FOUND", f"no such object {name}")

    def _bucket(self, match):
        if match["bucket"] not in self.buckets:
            raise ApiError(404, "NOT_FOUND", "The specified bucket does not exist.")
        return self.buckets[match["bucket"]]


def _object(bucket, name, content):
    updated = datetime.datetime.now(datetime.timezone.utc).isoformat()
    return {"bucket": bucket, "name": name, "size": str(len(content)), "generation": "1",
            "updated": updated}  # fmt: skip


def _multipart(kind, body):
    message = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\n\n" + body)
    return message.get_payload()


def _parts(kind, body):
    """The fields of a form, by name."""
    parts = _multipart(kind, body)
    return {part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
            for part in parts}  # fmt: skip
