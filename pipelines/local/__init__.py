"""Runs a compiled pipeline on this machine: the YAML that Vertex AI would get, executed.

from pipelines.local import run

result = run(
    pathlib.Path("build/digits.yaml"),
    recipe="digits",
    parameters={"epochs": 3},
    runs_directory=pathlib.Path("runs"),
)
result.state  # "SUCCEEDED"
"""

from pipelines.local.execution import Run, run
from pipelines.local.resumption import resume

__all__ = ["Run", "resume", "run"]
