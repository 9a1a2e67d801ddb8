"""What the files of delivery say, for the tests beside this one."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "containers" / "Dockerfile"
LOCKS = ("build", "cpu", "gpu", "serving")


def instructions() -> list[str]:
    """The Dockerfile's instructions, each on one line."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def copied_folders() -> list[str]:
    """Folders of this repository whose files end up in the image."""
    stage = instructions()
    start = stage.index("FROM scratch AS code") + 1
    end = next(n for n in range(start, len(stage)) if stage[n].startswith("FROM "))
    copied = [line.split()[1] for line in stage[start:end] if line.startswith("COPY ")]
    return [name for name in copied if (ROOT / name).is_dir()]


def locked(path: Path) -> dict[str, str]:
    """Versions by name in a lock file, of packages that Python 3.11 on Linux installs."""
    from packaging.requirements import Requirement

    versions = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            requirement = Requirement(line.rstrip("\\").strip())
            environment = {
                "python_version": "3.11",
                "python_full_version": "3.11.14",
                "sys_platform": "linux",
                "platform_system": "Linux",
                "platform_machine": "x86_64",
                "platform_python_implementation": "CPython",
                "implementation_name": "cpython",
            }
            if not requirement.marker or requirement.marker.evaluate(environment):
                versions[requirement.name] = str(requirement.specifier).removeprefix("==")
    return versions
