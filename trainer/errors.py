"""The error that a user's mistake becomes, and the exit codes of a failure."""

import contextlib
import sys
from collections.abc import Iterator


class InputError(Exception):
    """Something that came from the user can't be used.

    Its message is one line that names the value, the place it came from and the
    remedy. Command lines print it without a stack trace and exit with 2.
    """


EXIT_CODE = 2
"""Exit code of a process that ends on an `InputError` (the shell's usage error)."""

RETRY_EXIT_CODE = 134
"""Exit code of a replica whose job is worth another try, from its checkpoint.

Vertex AI takes 134, SIGABRT in a custom container, for transient and tries the job up to three
times: "Understand the training service", common errors.
"""


def one_line(text: object) -> str:
    """Text as one line that is safe to show."""
    return printable(" ".join(str(text).split()))


def printable(line: str) -> str:
    """A line with every sign spelled out that rules a terminal, as the name of a file may."""
    if line.isprintable():
        return line
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in line.expandtabs()
    )


@contextlib.contextmanager
def exit_on_input_error() -> Iterator[None]:
    """Ends the process with one line on stderr, and no stack trace, on an InputError."""
    try:
        yield
    except InputError as error:
        print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
        sys.exit(EXIT_CODE)
