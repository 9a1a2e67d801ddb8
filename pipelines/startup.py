"""Start and end a command line; only the standard library is needed, not the project's packages."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
"""Exit codes; the last one, after Ctrl-C, is that of shells."""
_PROJECT_PACKAGES = ("components", "pipelines", "trainer", "vertex")


@contextlib.contextmanager
def one_line_errors() -> "Iterator[None]":  # A text, which versions before 3.9 can read.
    """Exit without a traceback on Ctrl-C, and with one line for an old Python or no package."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is read by older versions, too.
        version = ".".join(map(str, sys.version_info[:3]))
        print(
            f"error: {sys.executable} is Python {version}, but the project needs 3.11 to 3.13; "
            "run `make run PYTHON=python3.11`, or activate an environment of a newer Python",
            file=sys.stderr,
        )
        sys.exit(EXIT_USAGE)
    try:
        yield
    except KeyboardInterrupt:
        end(EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in _PROJECT_PACKAGES:
            raise
        print(
            f"error: {sys.executable} has no package {name!r}; activate the environment that has "
            "it (. .venv/bin/activate), which `make run` sets up",
            file=sys.stderr,
        )
        sys.exit(EXIT_USAGE)


def exit_code(state: str) -> int:
    """Return a command's exit code for the final state of its run."""
    return {"SUCCEEDED": 0, "CANCELLED": EXIT_INTERRUPTED}.get(state, EXIT_FAILED)


def end(code: int) -> NoReturn:
    """Exit with `code`; ignore Ctrl-C while the interpreter shuts down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)
