"""The error for mistakes of the user, and the exit codes of a failure."""

import contextlib
import re
import sys
from collections.abc import Iterator


class InputError(Exception):
    """An input of the user can't be used.

    The message is one line that names the value, its origin and the remedy. Commands print it
    without a stack trace and exit with code 2.
    """


EXIT_CODE = 2
"""Exit code of a process that ends with an `InputError` (the shell's code for wrong usage)."""

RETRY_EXIT_CODE = 134
"""Exit code of a replica whose job should be retried from its checkpoint.

Vertex AI treats 134, SIGABRT in a custom container, as transient and restarts the job up to three
times: "Understand the training service", common errors.
"""


_HEADING = re.compile(
    r'Graph execution error:|Detected at node |<stack traces |File "|\d+ root error'
)


def one_line(text: object) -> str:
    """Return text as one printable line."""
    return escape_controls(" ".join(str(text).split()))


def first_line(error: BaseException) -> str:
    """Return the line of an error that gives the reason, without TensorFlow's heading and trace."""
    text = re.sub(r"\{\{.*?\}\}", "", str(error))
    lines = [line.strip() for line in text.splitlines()]
    reasons = [line for line in lines if line and not _HEADING.match(line)]
    lost = [line for line in reasons if re.search("UNAVAILABLE|abort", line, re.IGNORECASE)]
    return (lost or reasons or [type(error).__name__])[0][:300]


def escape_controls(line: str) -> str:
    """Return a line with escaped control characters, which names of files may contain."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in line.expandtabs()
    )


@contextlib.contextmanager
def located(place: str) -> Iterator[None]:
    """Begin the message of an InputError with the place of the mistake."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


@contextlib.contextmanager
def google_errors_as_input(doing: str, remedy: str) -> Iterator[None]:
    """Convert errors of Google's client libraries to InputError: "{doing}: reason; {remedy}"."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except (GoogleAPIError, GoogleAuthError) as error:
        # `doing` already names the resource, which is clearer than the request's URL.
        reason = re.sub(r"(GET|POST) \S+: ", "", str(error).partition("\n")[0])
        raise InputError(f"{doing}: {reason}; {remedy}") from None


@contextlib.contextmanager
def exit_on_input_error() -> Iterator[None]:
    """End the process on an InputError, with one line on stderr and no stack trace."""
    try:
        yield
    except InputError as error:
        print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
        sys.exit(EXIT_CODE)
