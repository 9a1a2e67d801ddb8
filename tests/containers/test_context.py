"""Test that the image gets what it needs, no more, and only what a hash vouches for."""

import ast
import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers import files
from trainer.serving import PORT

SERVING = files.ROOT / "trainer" / "serving"
NAMESPACES = ("google",)
ELSEWHERE = {"apache-beam", "tomli"}
"""Packages that come with Dockerfile.dataflow, and that Python needs before 3.11 alone."""


def imported_modules(paths, *, at_once: bool = False) -> set[str]:
    """Absolute imports of files, wherever in a file they stand, or those at its top alone."""
    modules = set()
    for path in paths:
        tree = ast.parse(path.read_text())
        for node in tree.body if at_once else ast.walk(tree):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                # From a package, the name may be a module.
                modules |= {node.module or ""}
                if (node.module or "").split(".")[0] in (*NAMESPACES, *files.copied_folders()):
                    modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def of_the_image() -> list[Path]:
    """Files of the code in the images for components and replicas, which have no web server."""
    paths = [path for name in files.copied_folders() for path in (files.ROOT / name).rglob("*.py")]
    return [path for path in paths if not path.is_relative_to(SERVING)]


def around_the_server() -> list[Path]:
    """Files outside of trainer/serving that its modules import, one by way of another."""
    left = [*SERVING.glob("*.py")]
    found: list[Path] = []
    while left:
        path = left.pop()
        found.append(path)
        for module in imported_modules([path], at_once=path.parent != SERVING):
            file = files.ROOT / f"{module.replace('.', '/')}.py"
            if file.exists() and file not in (*left, *found):
                left.append(file)
    return [path for path in found if path.parent != SERVING]


def unnamed(modules: set[str], name: str) -> dict[str, set[str]]:
    """The modules whose distributions containers/<name>.in does not name."""
    lines = (files.ROOT / "containers" / f"{name}.in").read_text().splitlines()
    named = {re.split("[~<=]", line)[0].strip() for line in lines if not line.startswith("#")}
    found = {}
    for module, distributions in distributions_of(modules).items():
        names = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions}
        if not names & {*named, *ELSEWHERE, "tensorflow"}:
            found[module] = names
    return found


def distributions_of(modules: set[str]) -> dict[str, set[str]]:
    """For each installed third-party module, the distributions that hold it."""
    tops, inside_namespaces = installed()
    ours = set(files.copied_folders())
    found = {}
    for module in modules:
        top = module.split(".")[0]
        if top in sys.stdlib_module_names or top in ours:
            continue
        if top in NAMESPACES:
            if module in inside_namespaces:
                found[module] = inside_namespaces[module]
        else:
            found[module] = set(tops.get(top, [top]))
    return found


@functools.cache
def installed() -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The distributions that hold each package, and those that hold each module of NAMESPACES."""
    inside: dict[str, set[str]] = {}
    for distribution in importlib.metadata.distributions():
        owner = distribution.metadata["Name"]
        for file in distribution.files or []:
            if file.parts[0] in NAMESPACES and file.suffix == ".py":
                name = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
                inside.setdefault(name, set()).add(owner)
    return dict(importlib.metadata.packages_distributions()), inside


def test_what_is_copied_suffices_to_import_every_module_of_the_image(tmp_path):
    for folder in files.copied_folders():
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(files.ROOT / folder, tmp_path / folder, ignore=ignore)
    script = (
        "import check, sys; print(len(check.import_modules()), sys.modules['trainer'].__file__)"
    )
    path = os.pathsep.join([str(tmp_path), str(files.ROOT / "containers")])
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    count, place = result.stdout.split()
    paths = [path for path in tmp_path.rglob("*.py") if path.parent.name != "serving"]
    written = [path for path in paths if path.name != "__init__.py"]
    assert int(count) >= len(written) > 40
    assert place.startswith(str(tmp_path))


def test_the_image_names_every_package_that_its_code_imports():
    assert not unnamed(imported_modules(of_the_image()), "packages")


def test_the_serving_image_names_every_package_that_its_code_imports():
    around = around_the_server()
    assert {"inputs.py", "errors.py", "storage.py"} <= {path.name for path in around}
    modules = imported_modules(SERVING.glob("*.py")) | imported_modules(around, at_once=True)
    assert {"starlette.applications", "uvicorn", "PIL", "numpy"} <= modules
    assert not unnamed(modules, "serving")


def test_the_serving_image_listens_to_all_and_holds_no_sdk():
    text = "\n".join(files.instructions())
    stage = text[text.index("FROM packages-serving AS serving") :].partition("\nFROM ")[0]
    assert 'CMD ["python3", "-m", "trainer.serving", "--host", "0.0.0.0"]' in stage
    assert f"EXPOSE {PORT}" in stage
    assert "COPY --from=code /app/trainer /app/trainer" in stage and "components" not in stage
    locked = files.locked(files.ROOT / "containers" / "serving.lock")
    assert not {"kfp", "google-cloud-aiplatform", "docker"} & locked.keys()
    assert {"uvicorn", "starlette", "tensorflow-cpu"} <= locked.keys()


@pytest.mark.parametrize("name", (*files.LOCKS, "dataflow"))
def test_every_package_of_the_image_has_hashes_and_no_address(name):
    text = (files.ROOT / "containers" / f"{name}.lock").read_text()
    assert "://" not in text and "--index" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert entries and all("==" in entry for entry in entries)
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("name", files.LOCKS)
def test_the_image_has_the_versions_that_the_tests_run_with(name):
    tested = files.locked(files.ROOT / "requirements.lock")
    image = files.locked(files.ROOT / "containers" / f"{name}.lock")
    if "tensorflow-cpu" in image:
        image["tensorflow"] = image.pop("tensorflow-cpu")
    cuda = {package for package in image if package.startswith("nvidia-")}
    assert bool(cuda) == (name == "gpu")
    different = {
        package: (version, tested.get(package))
        for package, version in image.items()
        if package not in cuda and tested.get(package) != version
    }
    assert not different


def test_nothing_but_what_the_dockerfile_takes_is_sent_to_the_builder():
    lines = (files.ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    taken = set(files.copied_folders())
    for line in files.instructions():
        if line.startswith("COPY ") and "--from=" not in line:
            taken |= set(line.split()[1:-1])
        taken |= set(re.findall(r"type=bind,source=([^,\s]+)", line))
    assert all((files.ROOT / path).exists() for path in taken)
    assert {path.split("/")[0] for path in taken} == allowed


def test_packages_come_before_code_so_that_changed_code_reinstalls_nothing():
    stages = "\n".join(files.instructions()).split("FROM ")
    for target in ("cpu", "gpu", "serving"):
        stage = next(
            stage for stage in stages if stage.startswith(f"packages-{target} AS {target}\n")
        )
        code, labels = stage.index("COPY --from=code"), stage.index("ARG COMMIT")
        assert code < stage.index("check.py") < labels
        assert stage.index("USER 1000") < stage.index("check.py")
    assert stages[-1].startswith("packages-cpu AS cpu\n")


def test_dataflow_adds_to_the_image_the_beam_whose_boot_program_it_takes():
    text = (files.ROOT / "containers" / "Dockerfile.dataflow").read_text()
    beam = files.locked(files.ROOT / "containers" / "dataflow.lock")["apache-beam"]
    assert f"\nARG BEAM={beam}\n" in text
    assert "FROM apache/beam_python3.11_sdk:${BEAM} AS beam" in text
