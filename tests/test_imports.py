"""Test that imports, also those in functions, go one way and without a circle."""

import ast
import graphlib

from tests.child_processes import ROOT

LAYERS = ("pipelines", "components", "trainer")
"""Each imports only itself and later ones."""
EMULATOR = "vertex_emulator"
"""Only the first layer imports it."""


def list_modules() -> dict[str, ast.Module]:
    modules = {}
    for folder in [*(ROOT / layer for layer in LAYERS), ROOT / "emulator" / EMULATOR]:
        for path in folder.rglob("*.py"):
            name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
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
        above = LAYERS[: LAYERS.index(layer)] if layer in LAYERS else ()
        if layer in LAYERS[1:]:
            above += (EMULATOR,)
        assert not {one for one in imported if one.startswith(above)}, name
