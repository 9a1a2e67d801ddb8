"""The process that executes a PipelineJob of the emulator in a folder.

    python -m pipelines.local.pipeline_job FOLDER

The folder holds request.json, with the job's project, location and ID, the recipe and its
parameters, and <recipe>.yaml, the pipeline.
"""

import json
import pathlib
import sys

from pipelines.json_files import to_whole_numbers
from pipelines.local.execution import execute, new_record
from pipelines.local.kfp_patches import make_constants
from pipelines.package import Package
from pipelines.run_history import locked, write_record
from trainer.errors import exit_on_input_error


def main(folder: str) -> int:
    """Execute the job; return its exit code."""
    directory = pathlib.Path(folder)
    request = json.loads((directory / "request.json").read_text())
    constants = make_constants(request["id"], request["project"], request["location"])
    with exit_on_input_error(), locked(directory) as lock:
        pipeline = Package(directory / f"{request['recipe']}.yaml")
        parameters = to_whole_numbers(request["parameters"])
        record = new_record(pipeline, parameters)
        write_record(record, directory)
        run = execute(pipeline, record, directory, lock, constants=constants)
        return 0 if run.state == "SUCCEEDED" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
