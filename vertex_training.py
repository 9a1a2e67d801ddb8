"""Start the command line, unless another package has the name of one of the project's.

`vertex-training` starts here and not in `pipelines`, which such a package may hide.
"""

import sys
from pathlib import Path

PACKAGES = {"components", "pipelines", "trainer", "vertex"}
OURS = ("vertex_emulator-", "vertex_tensorflow_training-")
"""Beginnings of the names of this project's distributions."""
EXIT_USAGE = 2


def main() -> None:
    """Run `vertex-training`, or `python -m pipelines`."""
    conflict = find_conflict()
    if conflict:
        print(f"error: {conflict}", file=sys.stderr)
        sys.exit(EXIT_USAGE)

    from pipelines import startup

    with startup.one_line_errors():
        from pipelines.commands import command_line

        command_line.main()


def find_conflict() -> str:
    """Return the error if a package of another project has a name of PACKAGES, or an empty string.

    It may be in the working folder, on the import path, or installed into the project's folder.
    """
    for folder in (Path(path or ".") for path in ("", *sys.path)):
        if (folder / Path(__file__).name).is_file():  # The project itself, or another copy of it.
            for listing in folder.glob("*.dist-info/top_level.txt"):
                names = listing.read_text(encoding="utf-8").split()
                same = PACKAGES.intersection(names)
                if same and not listing.parent.name.startswith(OURS):
                    return (
                        f"{listing.parent.name} installed a package {min(same)} over this "
                        "project's; rename that package, and install both projects again"
                    )
            continue
        for name in sorted(PACKAGES):
            if (folder / f"{name}.py").is_file() or any((folder / name).glob("*.py")):
                return (
                    f"the package {name} in {folder.absolute()} and this project's hide each "
                    f"other; rename it, such as to my_{name}, or work in a folder without it"
                )
    return ""
