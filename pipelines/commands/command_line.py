"""The command line `python -m pipelines`.

Each command imports KFP and other large packages itself, so that listing recipes takes less than
a second.
"""

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from pipelines import startup
from pipelines.commands import (
    model_commands,
    project_commands,
    recipe_commands,
    runs_commands,
    schedule_commands,
    serving_commands,
    start_commands,
)
from pipelines.startup import EXIT_FAILED, EXIT_INTERRUPTED
from vertex.client.cloud_errors import CloudError
from vertex.errors import EXIT_CODE, InputError, one_line

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_LONGEST_MESSAGE, _KEPT = 1000, 300

app = typer.Typer(
    help="TensorFlow training as a Vertex AI pipeline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run(application: typer.Typer, arguments: Sequence[str]) -> int:
    """Run a command line; return its exit code. A user's mistake prints one line and returns 2."""
    command = typer.main.get_command(application)
    try:
        _check_no_word_is_empty(arguments)
        code = command.main(list(arguments), standalone_mode=False) or 0
        if sys.stdout:  # None if the caller has closed it (>&-).
            sys.stdout.flush()
        return code
    except InputError as error:
        return _fail(error, EXIT_CODE)
    except CloudError as error:
        return _fail(error, EXIT_FAILED)
    except typer.TyperException as error:
        message = _describe_usage_error(error)
        # Without arguments, the command has printed its help.
        return _fail(message, EXIT_CODE) if message else EXIT_CODE
    except typer.Abort:
        return EXIT_INTERRUPTED
    except OSError as error:
        # Errors of named files are handled where the file is opened.
        if error.errno not in _OUTPUT_ERRORS or error.filename is not None:
            raise
        _fail(f"the output can't be written: {error.strerror}", EXIT_FAILED)
        # Otherwise Python tries again at exit to write the rest.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return EXIT_FAILED


def _check_no_word_is_empty(arguments: Sequence[str]) -> None:
    """Raise InputError for an empty value, which an unset variable of a script leaves.

    An empty value must not mean the default.
    """
    previous = "argument"
    for word in arguments:
        option, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            previous, word = option, value
        if not word.strip():
            raise InputError(f"{previous} {word!r} is empty; give a value, or leave it out")
        previous = word


def _describe_usage_error(error: typer.TyperException) -> str:
    """Return Typer's message with the refused value and a remedy, or "" if it has no message."""
    from pydantic_core import ValidationError

    message = error.format_message().rstrip(".")
    if isinstance(error, typer.BadParameter) and error.param:
        cause = error.__cause__  # pydantic's, which converts values for Typer
        if isinstance(cause, ValidationError):
            value, option = cause.errors()[0]["input"], error.param.get_error_hint()
            message = f"Invalid value {value!r} for {option}: {error.message}"
    if not message:
        return ""
    return f"{message}{'' if message.endswith('?') else ';'} --help lists commands and options"


def _fail(message: object, code: int) -> int:
    """Print an error in one line; return the exit code."""
    line = one_line(message)
    if len(line) > _LONGEST_MESSAGE:
        # Cut out the middle, which is a long value from the user; keep the error and the remedy.
        line = f"{line[:_KEPT]} … {line[-_KEPT:]}"
    print(f"error: {line}", file=sys.stderr)
    return code


_COMMANDS: dict[str, dict[str, Callable[..., Any] | typer.Typer]] = {
    "Recipes": {
        "recipes": recipe_commands.app,
        "parameters": recipe_commands.list_parameters,
        "plan": recipe_commands.plan,
        "compile": recipe_commands.compile_recipes,
    },
    "Runs": {
        "run": start_commands.run_recipe,
        "tune": start_commands.tune_recipe,
        "schedule": schedule_commands.app,
        "runs": runs_commands.runs,
        "status": runs_commands.status,
        "logs": runs_commands.logs,
        "cancel": runs_commands.cancel,
        "tensorboard": runs_commands.tensorboard,
    },
    "Models": {
        "promote": model_commands.promote,
        "deploy": model_commands.deploy,
        "serve": serving_commands.serve,
        "predict": serving_commands.predict,
        "monitor": serving_commands.monitor,
    },
    "Project": {
        "doctor": project_commands.doctor,
        "clean": project_commands.clean,
        "emulator": project_commands.emulator,
    },
}
"""The commands by their names, below the titles that --help shows."""

for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_command)


def main(application: typer.Typer = app) -> None:
    """Run the command line of `python -m pipelines`, or of compile.py, and exit."""
    for stream in (sys.stdout, sys.stderr):
        # Replace characters that the terminal's encoding does not have.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # Recipes name models and steps in the working folder, which an installed command lacks.
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError as error:
        print(f"error: no working folder ({error.strerror}); cd to another", file=sys.stderr)
        startup.end(EXIT_CODE)
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    code = run(application, sys.argv[1:])
    startup.end(code)
