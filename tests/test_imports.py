"""Test that imports, also those in functions, go one way and without a circle."""

import ast
import graphlib

from tests.child_processes import ROOT

LAYERS = {
    "trainer": set(),
    "components": {"trainer", "vertex_facts"},
    "pipelines": {"components", "trainer", "vertex_emulator", "vertex_facts"},
    "vertex_facts": set(),
    "vertex_emulator": {"vertex_facts"},
}
"""The other packages that each imports."""


def list_modules() -> dict[str, ast.Module]:
    modules = {}
    for layer in LAYERS:
        root = ROOT / "emulator" if layer.startswith("vertex_") else ROOT
        for path in (root / layer).rglob("*.py"):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            modules[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    return modules


def list_imports(node: ast.AST) -> set[str]:
    """Return the modules and names that code imports, except for its annotations."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return set()
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{alias.name}" for alias in node.names}
        return names | {str(node.module)}
    return {name for child in ast.iter_child_nodes(node) for name in list_imports(child)}


def test_imports_go_one_way_and_without_a_circle():
    modules = list_modules()
    graph = {name: list_imports(tree) & (modules.keys() - {name}) for name, tree in modules.items()}
    # A package counts only if no module of it is named.
    for name, imported in graph.items():
        packages = {one.rpartition(".")[0] for one in imported}
        graph[name] = {one for one in imported if one not in packages}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which lists a circle
    for name, imported in graph.items():
        layer = name.partition(".")[0]
        assert {one.partition(".")[0] for one in imported} <= {layer, *LAYERS[layer]}, name
