"""Upload of compiled pipelines to a repository: one for KFP in Artifact Registry, or a bucket.

    repository                                     a template
    https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY  <repository>/<pipeline>/sha256:<digest>
    gs://BUCKET/FOLDER                             <repository>/<pipeline>/<digest>.yaml

A template is stored once, under its digest; tags (a version, a commit, latest) point to it.
"""

import re
from collections.abc import Callable
from typing import Any

from pipelines.package import Package
from pipelines.project.connection import Connection
from pipelines.version import git_commit, project_version
from vertex.client.cloud_errors import (
    CONFLICT,
    NOT_FOUND,
    CloudError,
    status_of,
    tolerated,
    translated,
)

ARTIFACT_REGISTRY = re.compile(
    r"https://(?P<location>[a-z0-9-]+)-kfp\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)"
)
_UPLOADED = re.compile(r"(?P<package>[^/\s]+)/(?P<version>sha256:[^/\s]+)")
_PRECONDITION = 412


def make_tags() -> list[str]:
    """Return the tags for an upload: v<version>, commit-<commit>, latest."""
    version, commit = project_version(), git_commit()
    tags = [f"v{version}"] if version else []
    tags += [f"commit-{commit}"] if commit else []
    return [*tags, "latest"]


def repository_path(match: re.Match[str]) -> str:
    """Return the resource name of an Artifact Registry repository."""
    return (
        f"projects/{match['project']}/locations/{match['location']}/repositories/"
        f"{match['repository']}"
    )


def upload(connection: Connection, package: Package) -> tuple[str, bool]:
    """Store a template, unless the repository already has it, and move the tags to it.

    Returns the template's URI, which contains its digest, and True if it was not stored before.
    """
    repository = connection.settings.require("template_repository").template_repository
    with translated(f"uploading {package.path} to {repository}"):
        if repository.startswith("gs://"):
            return _upload_to_bucket(connection, package, repository.rstrip("/"))
        return _upload_to_registry(connection, package, repository.rstrip("/"))


def _upload_to_registry(
    connection: Connection, package: Package, repository: str
) -> tuple[str, bool]:
    """Upload to Artifact Registry or another KFP registry.

    KFP's RegistryClient makes the same requests, but has no deadline and hides the server's error.
    """
    connection.check_answers(repository, "check the setting template_repository and the network")
    match = ARTIFACT_REGISTRY.match(repository)
    folder = f"{repository_path(match)}/" if match else ""

    def ask(method: str, path: str, body: Any = None) -> dict[str, Any]:
        path = f"packages/{package.name}/{path}"
        if folder:
            return connection.call_api("artifactregistry", method, f"v1/{folder}{path}", body)
        return connection.send_json(method, f"{repository}/{path}", body)

    version = f"sha256:{package.digest}"

    def is_stored() -> bool:
        """Move the tags to the version and return True, unless it is not stored."""
        with tolerated(NOT_FOUND):
            ask("GET", f"versions/{version}")
            for tag in make_tags():
                _move_tag(ask, tag, f"{folder}packages/{package.name}/versions/{version}")
            return True
        return False

    uri = f"{repository}/{package.name}/{version}"
    if is_stored():
        return uri, False
    # The version's name is the content's digest, so a retry makes no second version.
    content = {"content": (package.path.name, package.bytes)}
    try:
        answer = connection.send_request(
            "POST", repository, data={"tags": ",".join(make_tags())}, files=content
        )
    except Exception as error:
        # An earlier request, whose answer was lost, may have stored it.
        if status_of(error) == CONFLICT and is_stored():
            return uri, True
        raise
    if not _UPLOADED.fullmatch(answer.text.strip()):
        raise CloudError(
            f"uploading {package.path} to {repository}: this is not the answer of a repository of "
            f"pipelines ({answer.text[:100]!r}); check the setting template_repository"
        )
    return f"{repository}/{answer.text.strip()}", True


def _move_tag(ask: Callable[..., dict[str, Any]], tag: str, version: str) -> None:
    """Point a tag at a version, given by its resource name."""
    with tolerated(NOT_FOUND):
        present = str(ask("GET", f"tags/{tag}").get("version", ""))
        if present.rpartition("/")[2] != version.rpartition("/")[2]:
            ask("PATCH", f"tags/{tag}?updateMask=version", {"version": version})
        return
    with tolerated(CONFLICT):
        ask("POST", f"tags?tagId={tag}", {"version": version})


def _upload_to_bucket(
    connection: Connection, package: Package, repository: str
) -> tuple[str, bool]:
    bucket_name, _, folder = repository.removeprefix("gs://").partition("/")
    prefix = f"{folder}/{package.name}".lstrip("/")
    bucket = connection.storage.bucket(bucket_name)
    name = f"{prefix}/{package.digest}.yaml"

    def write(name: str, **options: Any) -> None:
        blob, kind = bucket.blob(name), "application/yaml"
        blob.upload_from_string(package.bytes, kind, retry=connection.retry, **options)

    is_new = not bucket.blob(name).exists(retry=connection.retry)
    if is_new:
        with tolerated(_PRECONDITION):
            write(name, if_generation_match=0)
    for tag in make_tags():
        write(f"{prefix}/{tag}.yaml")
    return f"gs://{bucket_name}/{name}", is_new


def pin_template(connection: Connection, package: Package) -> str:
    """Upload a template if needed; return its URI by digest, or an empty string.

    The result is empty without a repository, and for a bucket: a PipelineJob's template URI must
    be in Artifact Registry.
    """
    if not connection.settings.template_repository:
        return ""
    uri, _ = upload(connection, package)
    return uri if uri.startswith("https://") else ""
