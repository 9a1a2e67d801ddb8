"""The surroundings of a command line from its first import to its last line.

    from pipelines import startup

    with startup.one_line_errors():
        from pipelines.commands.command_line import main

Imports nothing but the standard library: without the project's packages it still runs.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, as shells report it."""
_USAGE = 2
_OWN = ("components", "pipelines", "trainer")


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End the process without a traceback on Ctrl-C, and by one line where a package is missing."""
    _open_closed_streams()
    try:
        yield
    except KeyboardInterrupt:
        end(INTERRUPTED)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in _OWN:
            raise
        print(
            f"error: {sys.executable} has no package {name!r}; activate the environment that has "
            "it (. .venv/bin/activate), which `make run` sets up",
            file=sys.stderr,
        )
        sys.exit(_USAGE)


def exit_code(state: str) -> int:
    """Return the exit code of a command whose run has ended in a state."""
    return {"SUCCEEDED": 0, "CANCELLED": INTERRUPTED}.get(state, 1)


def end(code: int) -> NoReturn:
    """Exit with `code`; Ctrl-C no longer changes it while the interpreter shuts down."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Replace standard streams that the caller has closed (`>&-`) by the null device.

    Otherwise the next file that is opened takes the stream's number, and what a child prints
    ends in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one, as those below are in use.
            os.open(os.devnull, os.O_RDWR)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
