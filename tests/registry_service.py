"""A Model Registry for tests: slow operations, pages of two, project numbers in names, faults."""

from components.planning.serving_container import make_container
from tests.faulty_emulator import NUMBER, FaultyEmulator
from trainer.exported import model_files
from vertex.client.vertex_client import connect_vertex
from vertex.emulator import model_service
from vertex.emulator.operations import Operations
from vertex.registry.model_registry import ModelRegistry
from vertex.registry.model_upload import FILES_LABEL, MADE_BY, Candidate

__all__ = ["NUMBER", "ModelService", "candidate", "exported", "registry_at"]


class ModelService(FaultyEmulator):
    def __init__(self, folder, project_number=NUMBER):
        operations = Operations(seconds=0.001)
        self.store = model_service.ModelService(operations, folder)
        self.store.page_size = 2
        super().__init__(self.store, operations, project_number=project_number)


def registry_at(environment, project="my-project", location="us-central1"):
    """Return the registry of a project, to which `environment` leads."""
    client = connect_vertex("model", location, environment)
    return ModelRegistry(client, f"projects/{project}/locations/{location}")


def candidate(artifact_uri, **changes):
    """Return a version to register; unset fields are empty."""
    empty = {
        "container": make_container("us-central1-docker.pkg.dev/p/images/serving:1", "", ""),
        "description": "",
        "labels": dict(MADE_BY),
        "metrics": {},
    }
    return Candidate(artifact_uri=artifact_uri, **{**empty, **changes})


def exported(uri, **labels):
    """Return a version to register of a SavedModel that exists, with the digest of its files."""
    files = {FILES_LABEL: model_files.identify(uri)}
    return candidate(uri, labels={**MADE_BY, **files, **labels})
