"""Fixtures of the tests of the command line."""

import json
import shlex

import pytest

from pipelines.commands import command_line


@pytest.fixture
def command(capfd):
    """Run a command line, its first argument split as by a shell; return code, output, errors."""

    def run(line, *more):
        code = command_line.run(command_line.app, [*shlex.split(line), *more])
        shown = capfd.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def succeed(command):
    """Run a command line that must end with exit code 0 and no errors; return its output."""

    def run(*arguments):
        code, output, errors = command(*arguments)
        assert (code, errors) == (0, ""), (arguments, output, errors)
        return output

    return run


@pytest.fixture
def refused(command):
    """Run a command line that must end in one line, by default with exit code 2; return it."""

    def run(*arguments, code=2):
        *ended, error = command(*arguments)
        assert (*ended, error.count("\n")) == (code, "", 1), (arguments, error)
        assert error.startswith("error: ")
        return error

    return run


@pytest.fixture
def own_recipe(tmp_path, monkeypatch):
    """Write a recipe to recipes/ of the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="mine"):
        (tmp_path / "recipes").mkdir(exist_ok=True)
        (tmp_path / "recipes" / f"{name}.toml").write_text(text)

    return write


@pytest.fixture
def trips_recipe(own_recipe):
    """Write the recipe `trips` of the table in tests/tables.py, with a source and more lines."""
    from tests import tables  # which imports TensorFlow

    def inline(table):
        return "{" + ", ".join(f"{name} = {json.dumps(one)}" for name, one in table.items()) + "}"

    def write(source, more=""):
        columns = ", ".join(map(inline, tables.COLUMNS))
        text = f'source = "{source}"\nlabel = {inline(tables.LABEL)}\ncolumns = [{columns}]\n'
        own_recipe(f'{text}model = "wide_and_deep"\n{more}', "trips")

    return write
