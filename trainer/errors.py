"""The error that a user's mistake becomes, and the exit codes of a failure."""

import contextlib
import re
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


_HEADING = re.compile(
    r'Graph execution error:|Detected at node |<stack traces |File "|\d+ root error'
)


def one_line(text: object) -> str:
    """Return text as one line that is safe to show."""
    return printable(" ".join(str(text).split()))


def first_line(error: BaseException) -> str:
    """Return the line of an error that tells its reason.

    In TensorFlow's errors a heading and a trace come before it; a line on a peer or a server that
    is gone says more than those around it.
    """
    text = re.sub(r"\{\{.*?\}\}", "", str(error))
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and not _HEADING.match(line)]
    gone = [line for line in told if re.search("UNAVAILABLE|abort", line, re.IGNORECASE)]
    return (gone or told or [type(error).__name__])[0][:300]


def printable(line: str) -> str:
    """Return a line with every sign spelled out that rules a terminal, as a file's name may."""
    if line.isprintable():
        return line
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in line.expandtabs()
    )


@contextlib.contextmanager
def google_in_one_line(doing: str, remedy: str) -> Iterator[None]:
    """Turn what Google's client libraries raise into an InputError.

    Args:
        doing: what fails, as "gs://bucket can't be listed".
        remedy: what may help.
    """
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except (GoogleAPIError, GoogleAuthError) as error:
        # The URL of a request that failed says less than the place that is named already.
        reason = re.sub(r"(GET|POST) \S+: ", "", str(error))
        raise InputError(f"{doing}: {reason}; {remedy}") from None


@contextlib.contextmanager
def exit_on_input_error() -> Iterator[None]:
    """Ends the process with one line on stderr, and no stack trace, on an InputError."""
    try:
        yield
    except InputError as error:
        print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
        sys.exit(EXIT_CODE)
