"""Test that the images get what they need, no more, only packages with hashes, for every GPU."""

import ast
import functools
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.child_processes import ROOT
from tests.containers import container_files
from trainer.serving import PORT
from vertex.machines.machine_types import accelerators, list_offered_accelerators

CONTAINERS = ROOT / "containers"
SERVING = ROOT / "trainer" / "serving"
NAMESPACES = ("google",)
ELSEWHERE = {"apache-beam", "tensorflow"}
"""Packages of Dockerfile.dataflow and of containers/{cpu,gpu}.in."""


def imported_modules(paths, *, top_level: bool = False) -> set[str]:
    """Return the absolute imports of files, anywhere or only outside of functions."""
    modules = set()
    for path in paths:
        tree = ast.parse(path.read_text())
        for node in tree.body if top_level else ast.walk(tree):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                # From a package, the name may be a module.
                modules |= {node.module}
                if node.module.split(".")[0] in (*NAMESPACES, *container_files.copied_packages()):
                    modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def imported_by_the_server() -> list[Path]:
    """Return the files outside of trainer/serving that it imports, directly or indirectly."""
    left = [*SERVING.glob("*.py")]
    reached: list[Path] = []
    while left:
        path = left.pop()
        reached.append(path)
        for module in imported_modules([path], top_level=path.parent != SERVING):
            file = ROOT / f"{module.replace('.', '/')}.py"
            if file.exists() and file not in (*left, *reached):
                left.append(file)
    return [path for path in reached if path.parent != SERVING]


def unnamed(modules: set[str], name: str) -> dict[str, set[str]]:
    """Return the modules whose distributions containers/<name>.in does not name."""
    lines = (CONTAINERS / f"{name}.in").read_text().splitlines()
    named = {re.split("[~<=]", line)[0].strip() for line in lines if not line.startswith("#")}
    packages, namespace_modules = installed()
    ours, unnamed_modules = container_files.copied_packages(), {}
    for module in modules:
        top = module.split(".")[0]
        if top not in sys.stdlib_module_names and top not in ours:
            owners = (
                namespace_modules.get(module) if top in NAMESPACES else packages.get(top, [top])
            )
            names = {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners or ()}
            if names and not names & (named | ELSEWHERE):
                unnamed_modules[module] = names
    return unnamed_modules


@functools.cache
def installed() -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """Return the distributions of each package, and those of each module of NAMESPACES."""
    packages: dict[str, list[str]] = {}
    inside: dict[str, set[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        # Its property `files` takes six times as long.
        listed = distribution.read_text("RECORD") or ""
        for top in set(re.findall(r"^(\w+)[/.,]", listed, re.MULTILINE)):
            packages.setdefault(top, []).append(name)
        for path in re.findall(rf"^((?:{'|'.join(NAMESPACES)})/.*)\.py,", listed, re.MULTILINE):
            module = path.replace("/", ".").removesuffix(".__init__")
            inside.setdefault(module, set()).add(name)
    return packages, inside


@pytest.mark.slow
def test_copied_files_suffice_to_import_every_module(tmp_path):
    container_files.copy_code(tmp_path)
    script = (
        "import check, sys; print(len(check.import_modules()), sys.modules['trainer'].__file__)"
    )
    path = tmp_path, CONTAINERS
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    count, place = result.stdout.split()
    paths = [path for path in tmp_path.rglob("*.py") if path.parent.name != "serving"]
    assert int(count) >= len([path for path in paths if path.name != "__init__.py"]) > 40
    assert place.startswith(str(tmp_path))


def test_image_names_every_imported_package():
    paths = [
        path for name in container_files.copied_folders() for path in (ROOT / name).rglob("*.py")
    ]
    outside = (SERVING, *(ROOT / name for name in container_files.ignored_folders()))
    without_server = [path for path in paths if not any(map(path.is_relative_to, outside))]
    assert not unnamed(imported_modules(without_server), "packages")


def test_serving_image_names_every_imported_package():
    shared = imported_by_the_server()
    assert {"inputs.py", "errors.py", "storage.py"} <= {path.name for path in shared}
    modules = imported_modules(SERVING.glob("*.py")) | imported_modules(shared, top_level=True)
    assert {"starlette.applications", "uvicorn", "PIL", "numpy"} <= modules
    assert not unnamed(modules, "serving")


def test_serving_image_listens_on_all_addresses_without_sdk():
    text = "\n".join(container_files.instructions())
    stage = text[text.index("FROM packages-serving AS serving") :].partition("\nFROM ")[0]
    assert 'CMD ["python3", "-m", "trainer.serving", "--host", "0.0.0.0"]' in stage
    assert f"EXPOSE {PORT}" in stage
    assert "COPY --from=code /app/trainer /app/trainer" in stage and "components" not in stage
    assert "COPY --from=code /app/vertex /app/vertex" in stage
    locked = container_files.locked("containers/serving")
    assert not {"kfp", "google-cloud-aiplatform", "docker"} & locked.keys()
    assert {"uvicorn", "starlette", "tensorflow-cpu"} <= locked.keys()


@pytest.mark.parametrize("name", (*container_files.LOCKS, "dataflow"))
def test_every_locked_package_has_hashes_and_no_address(name):
    text = (CONTAINERS / f"{name}.lock").read_text()
    assert "://" not in text and "--index" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert entries and all("==" in entry for entry in entries)
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("name", container_files.LOCKS)
def test_image_has_the_versions_of_the_tests(name):
    tested, image = (
        container_files.locked("requirements"),
        container_files.locked(f"containers/{name}"),
    )
    if "tensorflow-cpu" in image:
        image["tensorflow"] = image.pop("tensorflow-cpu")
    cuda = {package for package in image if package.startswith("nvidia-")}
    assert bool(cuda) == (name == "gpu")
    common = {package: version for package, version in image.items() if package not in cuda}
    assert common == {package: tested.get(package) for package in common}


def test_builder_gets_only_what_the_dockerfile_copies():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    taken = set(container_files.copied_folders())
    for line in container_files.instructions():
        if line.startswith("COPY ") and "--from=" not in line:
            taken |= set(line.split()[1:-1])
        taken |= set(re.findall(r"type=bind,source=([^,\s]+)", line))
    assert all((ROOT / path).exists() for path in taken)
    folders = {path: next(rule for rule in allowed if path.startswith(rule)) for path in taken}
    assert {*folders.values()} == allowed


def test_changed_code_reinstalls_no_package():
    stages = "\n".join(container_files.instructions()).split("FROM ")
    for target in ("cpu", "gpu", "serving"):
        (stage,) = (line for line in stages if line.startswith(f"packages-{target} AS {target}\n"))
        code, check, labels = map(stage.index, ("COPY --from=code", "check.py", "ARG COMMIT"))
        assert code < check < labels
        assert stage.index("USER 1000") < check
        if target != "serving":
            assert check < stage.index("ARG RUN_AS=1000\nUSER ${RUN_AS}")
    assert stages[-1].startswith("packages-cpu AS cpu\n")


def test_dataflow_image_has_the_beam_of_its_boot_program():
    text = (CONTAINERS / "Dockerfile.dataflow").read_text()
    beam = container_files.locked("containers/dataflow")["apache-beam"]
    assert f"\nARG BEAM={beam}\n" in text
    assert "FROM apache/beam_python3.11_sdk:${BEAM} AS beam" in text


def capabilities(cudnn, cuda):
    """Return the lowest and the highest compute capability that the libraries support.

    From the support matrix of cuDNN and the release notes of CUDA.
    """
    lowest = 7.5 if cudnn >= Version("9.11") or cuda >= Version("13") else 5.0
    highest = 12.0 if cudnn >= Version("9.7") and cuda >= Version("12.8") else 9.0
    return lowest, highest


def test_cudnn_and_cuda_support_every_offered_gpu():
    versions = container_files.locked("containers/gpu")
    cudnn, cuda = (versions[f"nvidia-{name}-cu12"] for name in ("cudnn", "cuda-runtime"))
    lowest, highest = capabilities(Version(cudnn), Version(cuda))
    known = {name: accelerators()[name].capability for name in list_offered_accelerators()}
    assert [name for name, version in known.items() if not lowest <= version <= highest] == []


def test_locked_libraries_satisfy_tensorflow():
    versions = container_files.locked("containers/gpu")
    needed = [Requirement(text) for text in importlib.metadata.requires("tensorflow") or ()]
    of_cuda = [need for need in needed if need.name.startswith("nvidia-")]
    assert len(of_cuda) > 10
    assert [str(need) for need in of_cuda if versions[need.name] not in need.specifier] == []


def test_tensorflow_has_kernels_for_every_offered_gpu():
    import tensorflow as tf

    built = tf.sysconfig.get_build_info()["cuda_compute_capabilities"]
    binary = [int(name.removeprefix("sm_")) for name in built if name.startswith("sm_")]
    compiled_later = [
        int(name.removeprefix("compute_")) for name in built if name.startswith("comp")
    ]
    for name in list_offered_accelerators():
        capability = round(10 * accelerators()[name].capability)
        # A binary runs on later GPUs of its generation, PTX is compiled for all later ones.
        runs = [arch for arch in binary if arch // 10 == capability // 10 and arch <= capability]
        assert runs or [arch for arch in compiled_later if arch <= capability], name
