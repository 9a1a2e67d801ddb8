"""Runs a compiled pipeline on this machine: the YAML that Vertex AI would get, executed.

from pipelines.local.execution import run

result = run(
    pathlib.Path("build/digits.yaml"),
    recipe="digits",
    parameters={"epochs": 3},
    runs_directory=pathlib.Path("runs"),
)
result.state  # "SUCCEEDED"

Nothing is imported here: the launcher and steps in Cloud Storage are processes of this package.
"""
