"""Execution on this machine of a compiled pipeline, the same YAML that Vertex AI runs.

from pipelines.local.execution import run
from pipelines.runs.run_folders import load

folder = run(
    Package(pathlib.Path("build/digits.yaml")),
    parameters={"epochs": 3},
    runs_directory=pathlib.Path("runs"),
)
load(folder).state  # "SUCCEEDED"

This module imports nothing: the launcher and `bucket_executor` are processes that import it.
"""
