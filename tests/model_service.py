"""A ModelService for tests: slow operations, pages of two, project numbers in names, faults."""

from pipelines.emulator import model_service
from pipelines.emulator.operations import Operations
from tests.emulator import NUMBER, FaultyEmulator

__all__ = ["NUMBER", "ModelService"]


class ModelService(FaultyEmulator):
    def __init__(self, folder, project_number=NUMBER):
        operations = Operations(seconds=0.001)
        self.store = model_service.ModelService(folder, operations)
        self.store.page_size = 2
        super().__init__(self.store, operations, project_number=project_number)
