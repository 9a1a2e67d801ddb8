"""Check the sources, folders and champion of a run on this machine before it starts.

The checks are cheap for a source of any size: they look only at the folders of an image source, or
at its labels.csv and as many images as show that the two belong together, and at the header of a
table's first file. The run's steps check the content.
"""

import importlib.util
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from components.planning import prediction_input
from components.planning.prediction_options import BIGQUERY
from components.planning.worker_pools import MachineOptions
from pipelines import plan
from pipelines.parameters import ParameterSet
from pipelines.printing import say
from pipelines.recipe import Recipe
from trainer.data.schema import find_training_data
from trainer.data.sources import SourceKind, parse_source
from trainer.data.storage import is_remote
from trainer.evaluation.gate_options import check_floors
from trainer.models import open_model
from vertex.errors import InputError, first_line
from vertex.registry.version_aliases import CHAMPION

_WEIGHTS = "https://storage.googleapis.com/"
"""Server of the weights of keras.applications."""
_TIMEOUT_SECONDS = 5
_DEVICES = Path("/dev")


def prepare_training_values(
    recipe: Recipe, values: Mapping[str, Any], origin: str, *, in_containers: bool
) -> dict[str, Any]:
    """Return the parameters of a run on this machine that differ from the recipe's, and its labels.

    Prints what replaces accelerators. Raises InputError for values, sources and folders that can't
    be used, and if max_cost pays for no training.
    """
    parameters = recipe.with_values(values, origin=origin)
    plan.check_affordable(recipe, parameters)
    usual = recipe.parameters.values()
    # Also the recipe's values that have no effect with these.
    arguments = {
        name: value
        for name, value in parameters.values().items()
        if name in values or value != usual[name]
    }
    arguments |= check_local_sources(parameters, in_containers=in_containers)
    arguments["labels"] = parameters.job.labels
    evaluation = recipe.run_options.evaluation_accelerator
    say(*describe_substitutes(parameters.machines, evaluation))
    return arguments


def check_local_sources(parameters: ParameterSet, *, in_containers: bool = False) -> dict[str, Any]:
    """Check local sources and folders; return the parameters that change on this machine.

    Local paths become absolute, because each step runs in its own folder. Raises InputError for a
    missing or unusable folder, file or column, for a class without an image, and without Apache
    Beam if it is needed.
    """
    changed: dict[str, Any] = {}
    records = parameters.records
    if parameters.engine.records_engine == "dataflow" and not in_containers:
        _check_beam()
    kind, location = parse_source(records.source)
    uri = kind.uri(location)
    if uri and not is_remote(uri):
        location = str(_make_absolute(uri))
        if os.path.isdir(location):  # noqa: PTH112 - Path's raises for a name that is too long
            location = os.path.realpath(location)
        changed["source"] = f"{records.source.partition(':')[0]}:{location}"
    if records.data_dir and not is_remote(records.data_dir):
        changed["data_dir"] = str(_resolve_folder("data_dir", records.data_dir))
    read = uri or records.data_dir
    # Without a path, a container uses its own default folder.
    if location and not is_remote(read) and (read or not in_containers):
        _check_source(parameters, kind, location)
    if records.records_store and not is_remote(records.records_store):
        changed["records_store"] = str(_resolve_writable("records_store", records.records_store))
    resumed = parameters.pipeline.resume_from
    if resumed and not is_remote(resumed):
        changed["resume_from"] = str(_resolve_folder("resume_from", resumed))
    training = parameters.training
    if training.warm_start not in ("", CHAMPION) and not is_remote(training.warm_start):
        start = _make_absolute(training.warm_start)
        if not start.exists():
            raise InputError(
                f"warm_start: there is no {training.warm_start!r}; give champion, a file or folder"
            )
        changed["warm_start"] = str(start.resolve())
    model = open_model(training.model, training.model_options)
    if model.backbone_to_download() and not in_containers:
        _check_imagenet(model.backbone_to_download())
    for name, uri in model.local_files().items():
        if not is_remote(uri):
            file = _make_absolute(uri)
            if not os.path.isfile(file):  # noqa: PTH113 - Path's raises for a name that is too long
                raise InputError(f"model_options: {name}: there is no file {uri!r}; give another")
            changed["model_options"] = {**training.model_options, name: str(file)}
    return changed


def count_gpus(devices: Path = _DEVICES) -> int:
    """Return the number of GPUs, of which NVIDIA's driver has a file each in a folder."""
    return len(list(devices.glob("nvidia[0-9]*")))


def describe_substitutes(
    machines: MachineOptions, evaluation: str, devices: Path = _DEVICES
) -> Iterator[str]:
    """Yield a line for each use of accelerators: by replicas, and by the evaluation."""
    gpus = count_gpus(devices)
    users = {"a replica": (machines.accelerator_type, machines.accelerator_count)}
    users["the evaluation"] = (evaluation, 1)
    for user, (accelerator, count) in users.items():
        substitute = f"{gpus} GPUs of this machine" if gpus else "the CPU of this machine"
        if not gpus and count > 1:
            substitute += f", divided into {count} devices"
        if accelerator:
            yield f"instead of {count} x {accelerator}, {user} uses {substitute}"


def prepare_prediction_values(
    recipe: Recipe, values: Mapping[str, Any], runs_directory: Path, origin: str
) -> dict[str, Any]:
    """Return every parameter's value for a run on this machine, with absolute paths.

    Raises InputError if the input is missing or invalid, or the model has no champion.
    """
    from pipelines.local import local_registry  # imports gRPC

    completed = recipe.batch_values(values, origin=origin)
    for name in ("input", "output"):
        uri = completed[name]
        if uri.startswith(BIGQUERY):
            raise InputError(f"{name}={uri!r} is on Google Cloud; leave out --local, or give files")
        if uri and not is_remote(uri):
            # Each step runs in a folder of its own.
            completed[name] = os.path.abspath(uri)  # noqa: PTH100 - it may be a pattern
    if completed["output"] and not is_remote(completed["output"]):
        _resolve_writable("output", completed["output"])
    model = completed["model_name"]
    option = "--set model_name="
    champion = local_registry.fetch_champion(recipe.name, model, runs_directory, option=option)
    prediction_input.check(completed["input"], find_training_data(champion.artifact_uri))
    return completed


def has_imagenet_weights(backbone: str) -> bool:
    """Return whether Keras has downloaded the ImageNet weights of a backbone."""
    name = _normalize(backbone)
    return any(name in _normalize(path.name) for path in _cache().glob("*.h5"))


def _cache() -> Path:
    return Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras", "models")


def _check_source(parameters: ParameterSet, kind: type[SourceKind], location: str) -> None:
    """Raise InputError for an unusable local source, with the message that the step would give."""
    try:
        if classes := kind.find_classes(location, parameters.records):
            check_floors(parameters.gate.class_floors, classes)
    except InputError:
        raise
    except OSError as error:
        file = error.filename or location
        remedy = "fix its permissions" if isinstance(error, PermissionError) else "correct its path"
        raise InputError(
            f"source: {file} can't be read ({error.strerror or error}); {remedy}"
        ) from None
    except Exception as error:  # The user's code may raise anything.
        raise InputError(
            f"source={parameters.records.source!r}: {kind.__name__} can't be opened "
            f"({type(error).__name__}: {first_line(error)}); correct {kind.__module__}, or the data"
        ) from None


def _check_beam() -> None:
    if importlib.util.find_spec("apache_beam") is None:
        raise InputError(
            "records_engine='dataflow' needs Apache Beam, which this Python does not have; set it "
            "up with `make dataflow` and run `.venv/dataflow/bin/python -m pipelines ...`, or use "
            "records_engine=local"
        )


def _check_imagenet(backbone: str) -> None:
    """Raise InputError if ImageNet weights are not in Keras's cache and can't be downloaded."""
    if has_imagenet_weights(backbone):
        return
    request = urllib.request.Request(_WEIGHTS, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS).close()  # noqa: S310
    except urllib.error.HTTPError:
        return  # The server answers; an error for the bare address is fine.
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"model_options: weights='imagenet': the weights of {backbone} are not in {_cache()}, "
            f"and {_WEIGHTS} does not answer ({reason}); download the file on a machine with a "
            "network and give it as weights, or use weights=none"
        ) from None


def _normalize(name: str) -> str:
    """Return a name in lower case without separators: mobilenetv2 for mobilenet_v2."""
    return re.sub("[^a-z0-9]", "", name.lower())


def _resolve_folder(name: str, location: str) -> Path:
    folder = _make_absolute(location)
    if not os.path.exists(folder):  # noqa: PTH110 - Path's raises for a name that is too long
        raise InputError(f"{name}: there is no folder {location!r}; give an existing folder")
    if not folder.is_dir():
        raise InputError(f"{name}: {location!r} is a file; give a folder")
    return folder.resolve()


def _resolve_writable(name: str, location: str) -> Path:
    """Return the absolute path of a folder that exists or can be created."""
    folder = _make_absolute(location)
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise InputError(f"{name}={location!r}: {existing} is not a folder; give another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"{name}={location!r}: {existing} can't be written; give another folder")
    return folder


def _make_absolute(location: str) -> Path:
    # Unlike Path.expanduser, this leaves the name of an unknown user as it is.
    return Path(os.path.expanduser(location)).absolute()  # noqa: PTH111
