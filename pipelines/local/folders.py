"""The folder that a run leaves on this machine."""

import datetime
import os
import pathlib
import shutil

from pipelines.local import files
from trainer.errors import InputError


def make(
    runs_directory: pathlib.Path, recipe: str, package_path: pathlib.Path, root: str
) -> pathlib.Path:
    """Makes a run's folder with the package in it, and points `latest` there.

    The package is also the first object of a run that has a `root` in Cloud Storage, below
    `<root>/<name of the folder>`.

    Raises:
        InputError: runs_directory or root can't be written; then nothing is left.
    """
    try:
        # Not Path.resolve, which has an error of its own for links that go round.
        directory = _new_directory(pathlib.Path(os.path.realpath(runs_directory)), recipe)
    except OSError as error:
        raise _refused(runs_directory, error) from None
    name = f"{recipe}.yaml"
    link = directory.with_name(f".latest-{directory.name}")
    try:
        if root:
            files.write_first(f"{root}/{directory.name}/{name}", package_path.read_bytes())
        shutil.copyfile(package_path, directory / name)
        link.symlink_to(directory.name)
        link.replace(directory.with_name("latest"))
    except (OSError, InputError) as error:
        link.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, InputError):
            raise
        raise _refused(pathlib.Path(error.filename2 or runs_directory), error) from None
    return directory


def _new_directory(runs_directory: pathlib.Path, recipe: str) -> pathlib.Path:
    name = f"{recipe}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    runs_directory.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        directory = runs_directory / (name if number == 1 else f"{name}-{number}")
        try:
            directory.mkdir()
            return directory
        except FileExistsError:
            number += 1


def _refused(runs_directory: pathlib.Path, error: OSError) -> InputError:
    return InputError(
        f"{runs_directory} can't be written ({error.strerror}); choose another folder for runs"
    )
