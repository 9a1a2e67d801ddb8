"""Execution on this machine of a compiled pipeline, the same YAML that Vertex AI runs.

from pipelines.local.execution import run

result = run(
    Package(pathlib.Path("build/digits.yaml")),
    parameters={"epochs": 3},
    runs_directory=pathlib.Path("runs"),
)
result.state  # "SUCCEEDED"

This module imports nothing: the launcher and `bucket_executor` are processes that import it.
"""
