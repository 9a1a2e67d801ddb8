"""Check the places that runs read and write: bucket, repository of pipelines, image."""

import re
from urllib.parse import quote, urlsplit

from components.cloud_errors import NOT_FOUND, tolerated
from pipelines.cloud.connection import Connection
from pipelines.cloud.project_checks import Finding, own_permissions
from pipelines.cloud.upload import ARTIFACT_REGISTRY

_IMAGE = re.compile(
    r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)/"
    r"(?P<name>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)


def bucket(connection: Connection) -> Finding:
    """Check whether the bucket of runs is there, in their region."""
    settings = connection.settings.require("pipeline_root")
    create = (
        f"gcloud storage buckets create gs://{settings.bucket} --project={settings.project} "
        f"--location={settings.region} --uniform-bucket-level-access"
    )
    with tolerated(NOT_FOUND):
        found = connection.storage.get_bucket(settings.bucket, retry=connection.retry)
        location = str(found.location).lower()
        return Finding(
            location == settings.region,
            f"bucket gs://{settings.bucket}: in {location}",
            f"take one in {settings.region}, or reading costs money and time: {create}",
        )
    return Finding(False, f"bucket gs://{settings.bucket}: there is none", create)


def pipeline_repository(connection: Connection) -> Finding:
    """Check whether the repository of templates, where one is set, is there and holds pipelines."""
    settings = connection.settings
    repository = settings.template_repository
    if not repository or repository.startswith("gs://"):
        where = repository or "none set; runs and schedules carry their pipeline themselves"
        return Finding(True, f"pipeline repository: {where}")
    match = ARTIFACT_REGISTRY.match(repository)
    if not match:
        return Finding(None, f"pipeline repository {repository}: not in Artifact Registry")
    return _repository(connection, match, "KFP")


def uploads(connection: Connection) -> Finding:
    """Check whether who is signed in may upload pipelines to the repository of the settings."""
    repository = connection.settings.template_repository
    match = ARTIFACT_REGISTRY.match(repository)
    if match:
        right = "artifactregistry.repositories.uploadArtifacts"
        granted = own_permissions(connection, "artifactregistry", _path(match), [right])
        grant = (
            f"gcloud artifacts repositories add-iam-policy-binding {match['repository']} "
            f"--project={match['project']} --location={match['location']} --member=user:YOU "
            "--role=roles/artifactregistry.writer"
        )
    elif repository.startswith("gs://"):
        right, name = "storage.objects.create", urlsplit(repository).netloc
        bucket = connection.storage.bucket(name)
        granted = bucket.test_iam_permissions([right], retry=connection.retry)
        grant = (
            f"gcloud storage buckets add-iam-policy-binding gs://{name} --member=user:YOU "
            "--role=roles/storage.objectUser"
        )
    else:
        return Finding(None, f"own right to upload to {repository}: not in Artifact Registry")
    return Finding(
        right in granted, f"own right to upload to {repository}", f"an administrator: {grant}"
    )


def image(connection: Connection, setting: str = "image") -> Finding:
    """Check whether the image of a setting has been pushed."""
    image = getattr(connection.settings.require(setting), setting)
    match = _IMAGE.fullmatch(image)
    if not match:
        return Finding(None, f"image {image}: not in Artifact Registry; could not be checked")
    repository = _repository(connection, match, "DOCKER")
    if not repository.ok:
        return repository
    name = quote(match["name"], safe="")
    tag = f"tags/{match['tag'] or 'latest'}"
    version = f"versions/{match['digest']}" if match["digest"] else tag
    path = f"v1/{_path(match)}/packages/{name}/{version}"
    with tolerated(NOT_FOUND):
        connection.rest("artifactregistry", "GET", path)
        if match["project"] != connection.settings.project:
            return Finding(
                None,
                f"image {image}: it is in another project than the runs",
                "see that Vertex AI's service agents may pull it, which need "
                f"roles/artifactregistry.reader on {match['repository']} in {match['project']}: "
                "docs/vertex.md, step 3",
            )
        return Finding(True, f"image {image}")
    return Finding(False, f"image {image}: it is not there", "build it and push it")


def _repository(connection: Connection, match: re.Match[str], kind: str) -> Finding:
    location, project, name = match["location"], match["project"], match["repository"]
    create = (
        f"gcloud artifacts repositories create {name} --project={project} --location={location} "
        f"--repository-format={kind.lower()}"
    )
    with tolerated(NOT_FOUND):
        found = connection.rest("artifactregistry", "GET", f"v1/{_path(match)}").get("format", "")
        what = f"repository {name}: of format {found}, in {location}"
        return Finding(found == kind, what, f"its format must be {kind}: {create}")
    return Finding(False, f"repository {name}: there is none in {location}", create)


def _path(match: re.Match[str]) -> str:
    """Return the resource name of a repository of Artifact Registry."""
    return "projects/{project}/locations/{location}/repositories/{repository}".format(
        **match.groupdict()
    )
