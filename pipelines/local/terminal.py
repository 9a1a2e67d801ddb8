"""The terminal of a run: its signals, and the redirection of other output to a log."""

import contextlib
import io
import logging
import pathlib
import re
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from rich.console import Console

_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class Interrupts:
    """Signals that end a run. The first raises KeyboardInterrupt; the others are only counted.

    Raised while the first is handled, another KeyboardInterrupt would leave the run unfinished.
    """

    count = 0

    def receive(self, *_: Any) -> None:
        """Handle a signal."""
        self.count += 1
        if self.count == 1:
            raise KeyboardInterrupt


@contextlib.contextmanager
def signals_interrupt() -> Iterator[Interrupts]:
    """Treat SIGTERM and a closed terminal like Ctrl-C."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupts.receive) for number in numbers]
    try:
        yield interrupts
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _LogFile(io.TextIOWrapper):
    """A text file that drops color codes and escapes other escape sequences."""

    def write(self, text: str) -> int:
        # An error of the log on a full disk must not hide the reason of the run's failure.
        with contextlib.suppress(OSError):
            super().write(_COLOR.sub("", text).replace("\x1b", "\\x1b"))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def capture_output(console: Console, log: pathlib.Path) -> Iterator[None]:
    """Redirect all printed text, log records and warnings to `log`, except those of `console`."""
    stream = console.file
    with _LogFile(log.open("wb"), encoding="utf-8", line_buffering=True) as file:
        handler = logging.StreamHandler(file)
        root = logging.getLogger()
        with contextlib.ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("default")
            stack.enter_context(contextlib.redirect_stdout(file))
            stack.enter_context(contextlib.redirect_stderr(file))
            root.addHandler(handler)
            stack.callback(root.removeHandler, handler)
            # A console without its own file would follow sys.stdout.
            console.file = stream
            yield
