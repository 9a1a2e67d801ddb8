"""Recipes of tests, and processes of the command line."""

import json
import os
import shutil
import sys

import pytest

from pipelines import recipe
from tests import child_processes
from tests.child_processes import ROOT
from vertex.emulator import background_jobs, job_service, processes

RECIPES = ("cats_vs_dogs", "chicago_taxi", "digits", "emotions", "flowers", "housing", "mnist")
"""The recipes of the project."""


def started(*arguments, **options):
    """Run the command line in a process of its own; yield the process and kill it in the end."""
    command = [sys.executable, "-m", "pipelines", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return child_processes.started(command, env=environment, **options)


@pytest.fixture(autouse=True, scope="session")
def recipes_of_the_project(tmp_path_factory):
    """Hide recipes of the user's own beside those of the project."""
    folder = tmp_path_factory.mktemp("recipes")
    for name in RECIPES:
        shutil.copy(recipe.DIRECTORY / f"{name}.toml", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "DIRECTORY", folder)
        yield


@pytest.fixture(autouse=True, scope="session")
def quick_polls():
    """Look at jobs and processes of this process more often than once in 50 ms."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (background_jobs, job_service, processes):
            patch.setattr(module, "_POLL_SECONDS", 0.01)
        yield


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
        return (
            "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in table.items()) + "}"
        )

    def write(source, more=""):
        columns = ", ".join(map(inline, tables.COLUMNS))
        text = f'source = "{source}"\nlabel = {inline(tables.LABEL)}\ncolumns = [{columns}]\n'
        own_recipe(f'{text}model = "wide_and_deep"\n{more}', "trips")

    return write
