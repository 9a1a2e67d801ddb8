"""Entry point of every replica of a training job.

    python -m trainer.task --dataset=URI --base_output_directory=URI --config=URI --epochs=10 ...

Flags override single values of the config; trials of hyperparameter tuning pass them. The role
and, with strategy=auto, the strategy come from TF_CONFIG, as Vertex AI sets it.

Exit codes:
    0    success
    1    any other error
    2    a user's mistake, described in one line
    134  retry (SIGTERM, a peer that did not come back, storage that does not answer): the same
         command resumes from the checkpoint
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from trainer import quiet
from trainer.engine import rejoin
from vertex.errors import EXIT_CODE, RETRY_EXIT_CODE, InputError


def main(arguments: list[str]) -> int:
    """Run a replica; return its exit code."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Let callers choose that a call to a lost peer fails instead of waiting forever:
    # https://www.tensorflow.org/tutorials/distribute/parameter_server_training
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    try:
        from trainer.training.job import parse

        job = parse(arguments, dict(os.environ))
        quiet.import_keras()
        from trainer.training import replica

        try:
            with _temporary_files():
                return replica.run(job)
        except replica.PeerGoneError as gone:
            print(f"{gone}; waiting for it", flush=True)
            rejoin.restart([sys.executable, "-m", "trainer.task", *arguments])
            print(f"error: {gone}, and did not come back", file=sys.stderr, flush=True)
            return RETRY_EXIT_CODE
    except InputError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_CODE


@contextlib.contextmanager
def _temporary_files() -> Iterator[None]:
    """Remove all temporary files: os._exit skips the handlers that remove AutoGraph's."""
    with tempfile.TemporaryDirectory(prefix="replica-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = None


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once, because a cluster's servers and collective threads may wait for lost peers.
    os._exit(code)
