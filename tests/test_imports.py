"""Test that imports go one way, without a circle, and that names of classes are unique."""

import ast
import collections
import graphlib
import importlib.metadata
import os.path
from collections.abc import Collection

import pytest
from packaging.requirements import Requirement

from tests.child_processes import ROOT

LAYERS = {
    "vertex": set(),
    "trainer": {"vertex"},
    "components": {"trainer", "vertex"},
    "pipelines": {"components", "trainer", "vertex"},
}
"""The other packages that each imports."""


def list_modules() -> dict[str, ast.Module]:
    modules = {}
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            modules[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return modules


def list_imports(node: ast.AST, modules: Collection[str]) -> set[str]:
    """Return the modules that code imports, also in functions and for annotations."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        names = (f"{node.module}.{alias.name}" for alias in node.names)
        return {name if name in modules else str(node.module) for name in names}
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        found |= list_imports(child, modules)
    return found


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    modules = list_modules()
    imported = {name: list_imports(tree, modules) for name, tree in modules.items()}
    return {name: found & (modules.keys() - {name}) for name, found in imported.items()}


def test_imports_go_one_way_and_without_a_circle(graph):
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which lists a circle
    for name, imported in graph.items():
        layer = name.partition(".")[0]
        assert {one.partition(".")[0] for one in imported} <= {layer, *LAYERS[layer]}, name


def test_folders_import_each_other_one_way(graph):
    folders = {name.rpartition(".")[0] for name in graph}
    # Of each import, the folder or module of either end in the innermost folder that holds both.
    beside = collections.defaultdict(set)
    for name, imported in graph.items():
        for other in imported:
            ends = [[*end.split("."), *["__init__"] * (end in folders)] for end in (name, other)]
            depth = len(os.path.commonprefix(ends)) + 1  # noqa: RUF071 - of lists
            importer, target = (".".join(end[:depth]) for end in ends)
            beside[importer].add(target)
    graphlib.TopologicalSorter(beside).prepare()
    # A module beside folders is below them all, or above them all; commands are above the API.
    below = {module for folder in folders & beside.keys() for module in beside[folder]} - folders
    below.remove("pipelines.api")
    assert not [module for module in below & beside.keys() if beside[module] & folders]


def test_writer_of_records_meets_tables_and_images_in_one_place_each(graph):
    meeting = collections.defaultdict(set)
    for name, imported in graph.items():
        if name.startswith("trainer.data.write."):
            for folder in {".".join(one.split(".")[:3]) for one in imported}:
                meeting[folder].add(name.removeprefix("trainer.data.write."))
    # `written_labels` count columns; a message of `checks` explains values that can't be parsed.
    assert meeting["trainer.data.tables"] == {"open_table", "written_labels", "checks"}
    assert meeting["trainer.data.images"] == {"open_images"}


def test_training_evaluation_and_serving_do_not_import_each_other(graph):
    jobs = {"trainer.training", "trainer.evaluation", "trainer.serving"}
    for name, imported in graph.items():
        folders = {".".join(one.split(".")[:2]) for one in (name, *imported)} & jobs
        assert not jobs.intersection([".".join(name.split(".")[:2])]) or len(folders) == 1, name


def test_no_two_public_classes_have_one_name():
    defined = collections.defaultdict(list)
    for name, tree in list_modules().items():
        if not name.startswith("vertex.emulator"):  # A distribution of its own.
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    defined[node.name].append(name)
    assert {name: modules for name, modules in defined.items() if len(modules) > 1} == {}


def test_pipeline_components_exclude_the_second_version_of_the_sdk():
    needed = map(Requirement, importlib.metadata.requires("google-cloud-pipeline-components"))
    (sdk,) = [one for one in needed if one.name == "google-cloud-aiplatform"]
    # Once they accept it, raise the bound in pyproject.toml.
    assert "2.0.1" not in sdk.specifier
