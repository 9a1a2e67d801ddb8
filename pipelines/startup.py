"""Start and end a command line; only the standard library is needed, not the project's packages."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, by the convention of shells."""
_USAGE = 2
_PROJECT_PACKAGES = ("components", "pipelines", "trainer")


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Exit without a traceback on Ctrl-C, and with a one-line error for a missing package."""
    try:
        yield
    except KeyboardInterrupt:
        end(INTERRUPTED)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in _PROJECT_PACKAGES:
            raise
        print(
            f"error: {sys.executable} has no package {name!r}; activate the environment that has "
            "it (. .venv/bin/activate), which `make run` sets up",
            file=sys.stderr,
        )
        sys.exit(_USAGE)


def exit_code(state: str) -> int:
    """Return a command's exit code for the final state of its run."""
    return {"SUCCEEDED": 0, "CANCELLED": INTERRUPTED}.get(state, 1)


def end(code: int) -> NoReturn:
    """Exit with `code`; ignore Ctrl-C while the interpreter shuts down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)
