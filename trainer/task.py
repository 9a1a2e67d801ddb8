"""Entry point of every replica of a training job.

    python -m trainer.task --dataset=URI --base_output_directory=URI --config=URI --epochs=10 ...

Flags override single values of the config, as a trial of hyperparameter tuning gives them. Role
and strategy come from TF_CONFIG, as Vertex AI sets it. Exit codes: 0 done, 2 a
mistake of the user's (one line says which), 134 worth another try (told to stop, a peer that did
not come back, storage that does not answer: the same command goes on from the checkpoint), 1
anything else.
"""

import os
import sys

from trainer.errors import EXIT_CODE, RETRY_EXIT_CODE, InputError
from trainer.training import rejoin


def main(arguments: list[str]) -> int:
    """Runs one replica; returns its exit code."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # A call to a peer that is gone fails when its caller wants that, instead of never:
    # https://www.tensorflow.org/tutorials/distribute/parameter_server_training
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    try:
        from trainer.training.job import parse

        job = parse(arguments, dict(os.environ))
        from trainer.training import replica

        try:
            return replica.run(job)
        except replica.PeerGoneError as gone:
            print(f"{gone}; waiting for it", flush=True)
            rejoin.restart(arguments)
            print(f"error: {gone}, and did not come back", file=sys.stderr, flush=True)
            return RETRY_EXIT_CODE
    except InputError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_CODE


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The servers and collective threads of a cluster may wait for peers that are gone.
    os._exit(code)
