"""KFP's executor for artifacts in Cloud Storage on a machine where no bucket is mounted.

    python -m vertex.emulator.engine.bucket_executor ARGUMENTS    (as for kfp.dsl.executor_main)

On Vertex AI every bucket is a folder below /gcs, and KFP gives each artifact a path there. In a
run on this machine, an empty folder, BUCKETS_FOLDER, takes the place of /gcs, and KFP creates
folders in it. A component can use artifact.uri instead of these paths. A file that it writes there
would be lost, so the task fails.
"""

import os
import pathlib
import sys
from collections.abc import Sequence

FOLDER_VARIABLE = "BUCKETS_FOLDER"
_WRONG_USAGE = 2
_KFP_EXECUTOR = "kfp.dsl.executor_main"


def replace_executor(command: Sequence[str], module: str = __name__) -> list[str]:
    """Return a component's command with this module in place of KFP's executor.

    A command that contains the component's source names the executor in a shell script.
    """
    return [word.replace(_KFP_EXECUTOR, module) for word in command]


def main() -> int:
    """Run a component; return its exit code."""
    from kfp.dsl import executor_main
    from kfp.dsl.types import artifact_types

    folder = pathlib.Path(os.environ[FOLDER_VARIABLE])
    artifact_types._GCS_LOCAL_MOUNT_PREFIX = f"{folder}/"
    executor_main.executor_main()
    lost = next((path for path in folder.rglob("*") if path.is_file()), None)
    if lost is None:
        return 0
    print(
        f"error: /gcs/{lost.relative_to(folder)} was written, but on this machine no bucket is "
        "mounted; change the component to write to artifact.uri with tf.io.gfile",
        file=sys.stderr,
    )
    return _WRONG_USAGE


if __name__ == "__main__":
    sys.exit(main())
