"""Compiled pipelines into a repository: Artifact Registry's kind for KFP, or a bucket.

    repository                                     a template
    https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY  <repository>/<pipeline>/sha256:<digest>
    gs://BUCKET/FOLDER                             <repository>/<pipeline>/<digest>.yaml

The same bytes are stored once; tags (a version, a commit, latest) are moved to them.
"""

import dataclasses
import functools
import hashlib
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipelines.revision import git_commit, project_version
from pipelines.vertex.connection import Connection, attempt, is_loopback
from pipelines.vertex.errors import NOT_FOUND, status_of, tolerated, translated
from pipelines.vertex.template import Template

_PRECONDITION = 412


@dataclasses.dataclass(frozen=True)
class Upload:
    """What came of an upload.

    Attributes:
        uri: of exactly these bytes, for template_path of an SDK and for the console.
        is_new: whether they were not there before.
        tags: that lead to them now.
    """

    uri: str
    is_new: bool
    tags: list[str]


def tags() -> list[str]:
    """Tags of what is uploaded now: v<version>, commit-<commit>, latest."""
    version, commit = project_version(), git_commit()
    found = [f"v{version.replace('.', '-')}"] if version else []
    found += [f"commit-{commit}"] if commit else []
    return [*found, "latest"]


def upload(connection: Connection, template: Template) -> Upload:
    """Stores a template, if it is not there, and moves the tags to it.

    Raises:
        CloudError: refused, or no connection.
    """
    repository = connection.settings.require("template_repository").template_repository
    with translated(f"uploading {template.path} to {repository}"):
        if repository.startswith("gs://"):
            return _to_bucket(connection, template, repository.rstrip("/"))
        return _to_registry(connection, template, repository.rstrip("/"))


def _to_registry(connection: Connection, template: Template, repository: str) -> Upload:
    client = _registry(connection, repository)
    package = template.pipeline_name
    found = _present(client, template)
    if not found:
        # Content names the version: sent twice, it is still one.
        package, found = attempt(lambda: client.upload_pipeline(str(template.path), tags()))
        return Upload(f"{repository}/{package}/{found}", True, tags())
    for tag in tags():
        attempt(functools.partial(_move_tag, client, package, found, tag))
    return Upload(f"{repository}/{package}/{found}", False, tags())


def _present(client: Any, template: Template) -> str:
    """The version that holds a template's bytes; empty if there is none."""
    version = f"sha256:{template.digest}"
    with tolerated(NOT_FOUND):
        attempt(lambda: client.get_version(template.pipeline_name, version))
        return version
    # A repository may name versions otherwise: compare with the latest.
    with tolerated(NOT_FOUND):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "latest.yaml")
            attempt(
                lambda: client.download_pipeline(
                    template.pipeline_name, tag="latest", file_name=str(path)
                )
            )
            if hashlib.sha256(path.read_bytes()).hexdigest() != template.digest:
                return ""
        tag = attempt(lambda: client.get_tag(template.pipeline_name, "latest"))
        return str(tag.get("version", "")).rpartition("/")[2]
    return ""


def _move_tag(client: Any, package: str, version: str, tag: str) -> None:
    present = None
    with tolerated(NOT_FOUND):
        present = client.get_tag(package, tag)
    if present is None:
        client.create_tag(package, version, tag)
    elif str(present.get("version", "")).rpartition("/")[2] != version:
        client.update_tag(package, version, tag)


def _registry(connection: Connection, repository: str) -> Any:
    connection.check_answers(repository, "check the setting template_repository and the network")
    from kfp.registry import ApiAuth, RegistryClient

    if is_loopback(urlsplit(repository).netloc):
        return RegistryClient(host=repository, auth=ApiAuth("anonymous"))
    return RegistryClient(host=repository, auth=connection.credentials)


def _to_bucket(connection: Connection, template: Template, repository: str) -> Upload:
    bucket_name, _, folder = repository.removeprefix("gs://").partition("/")
    prefix = f"{folder}/{template.pipeline_name}".lstrip("/")
    bucket = connection.storage.bucket(bucket_name)
    content = template.path.read_bytes()
    name = f"{prefix}/{template.digest}.yaml"
    is_new = _write_once(bucket, name, content)
    for tag in tags():
        blob = bucket.blob(f"{prefix}/{tag}.yaml")
        attempt(functools.partial(blob.upload_from_string, content, "application/yaml"))
    return Upload(f"gs://{bucket_name}/{name}", is_new, tags())


def _write_once(bucket: Any, name: str, content: bytes) -> bool:
    """Writes an object that must not be there yet; whether it was not."""
    blob = bucket.blob(name)
    if attempt(blob.exists):
        return False
    try:
        attempt(lambda: blob.upload_from_string(content, "application/yaml", if_generation_match=0))
    except Exception as error:
        if status_of(error) != _PRECONDITION:
            raise
        return False
    return True


def pinned(connection: Connection, template: Template) -> str:
    """URI of a template by its digest, uploaded if need be; empty without a repository.

    Only Artifact Registry's URIs are ones that a PipelineJob may name as its template.
    """
    if not connection.settings.template_repository:
        return ""
    uri = upload(connection, template).uri
    return uri if uri.startswith("https://") else ""
