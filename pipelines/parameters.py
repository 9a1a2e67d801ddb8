"""The pipeline's parameters: names, types, defaults, descriptions and bounds.

The dataclasses in `ParameterSet` declare them. The pipeline's signature is derived from these,
and `check_parameters` validates every value that a user gives, in a recipe, by --set or otherwise.
"""

import dataclasses
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

from components.planning.pipeline_options import JobOptions, PipelineOptions, RegistryOptions
from components.planning.preparation import check_job
from components.planning.worker_pools import MachineOptions
from trainer import fields
from trainer.data.sources import list_forms, parse_source
from trainer.data.tables.columns import AUTO
from trainer.data.write.record_options import EngineOptions, RecordOptions
from trainer.effects import check_effects, find_without_effect
from trainer.evaluation.gate_options import GateOptions, check_floors
from trainer.models import MODELS, open_model
from trainer.tasks.label_kinds import check_label_options, kind_of
from trainer.training.config import TrainingConfig
from vertex.errors import InputError
from vertex.facts import resource_names
from vertex.formats import suggest
from vertex.registry.version_aliases import CHAMPION

# A task receives its inputs as one command-line argument, which Linux limits to 131,072 bytes; the
# rest is for artifacts, their metadata and the names that KFP adds.
_PARAMETER_BYTES = 65_536


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParameterSet:
    """A value for each parameter: of the right type, in bounds and consistent."""

    records: RecordOptions
    engine: EngineOptions
    training: TrainingConfig
    machines: MachineOptions
    pipeline: PipelineOptions
    gate: GateOptions
    registry: RegistryOptions
    job: JobOptions

    def values(self) -> dict[str, Any]:
        """Return every parameter's value, in the order of the pipeline's signature."""
        merged = {
            name: value for group in vars(self).values() for name, value in vars(group).items()
        }
        return {name: merged[name] for name in PARAMETERS}


def list_parameters(topics: Mapping[str, type]) -> dict[str, tuple[type, dataclasses.Field]]:
    """Return the fields of the topics' dataclasses by name, each with the first that has it."""
    parameters: dict[str, tuple[type, dataclasses.Field]] = {}
    for group in topics.values():
        for field in dataclasses.fields(group):
            parameters.setdefault(field.name, (group, field))
    return parameters


TOPICS: dict[str, type] = get_type_hints(ParameterSet)
"""The dataclass of each topic."""
GROUPS = tuple(TOPICS.values())
PARAMETERS = list_parameters(TOPICS)


def expand_auto(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in which `columns` is a list even if it is "auto"."""
    return {**values, "columns": AUTO} if values.get("columns") == "auto" else dict(values)


def check_parameters(
    values: Mapping[str, Any], *, origin: str, inherited: Collection[str] = ()
) -> ParameterSet:
    """Check parameter values and add defaults for those not given.

    A string is converted to the parameter's type. `origin`, where the values come from, starts the
    message of InputError. A value without effect is refused; that of a parameter in `inherited`
    becomes the default, since other values than the user's gave it to a recipe.
    """
    values = expand_auto(values)
    try:
        for name in values:
            if name not in PARAMETERS:
                listing = "; `python -m pipelines parameters` lists them"
                hint = suggest(name, PARAMETERS, listing)
                if isinstance(values[name], dict):
                    hint = f"; set parameters above the first table, without [{name}]"
                raise InputError(f"unknown parameter {name!r}{hint}")
        groups: dict[str, Any] = {}
        for topic, group in TOPICS.items():
            groups[topic] = fields.build(group, fields.pick(group, values))
        result = ParameterSet(**groups)
        unused = find_without_effect(*groups.values())
        if dropped := unused.keys() & set(inherited):
            used = {name: value for name, value in values.items() if name not in dropped}
            return check_parameters(used, origin="", inherited=inherited)
        check_effects(*groups.values())
        _check_consistency(result)
    except InputError as error:
        raise InputError(f"{origin}: {error}" if origin else str(error)) from None
    return result


def change_machines(parameters: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `changes` of a run's machine options, checked and converted.

    Raise InputError if one is no machine option, or if they don't fit the run's parameters.
    """
    known = fields.pick(MachineOptions, parameters)
    for name in changes:
        if name not in known:
            raise InputError(
                f"--set {name} excludes --resume, which can change only machines: "
                f"{', '.join(known)}"
            )
    try:
        machines = fields.build(MachineOptions, {**known, **changes})
        check_effects(machines, names=changes)
    except InputError as error:
        raise InputError(f"--set: {error}") from None
    return {name: getattr(machines, name) for name in changes}


def _check_size(values: ParameterSet) -> None:
    """Raise InputError for parameters that do not fit into a task's command line."""
    sizes = {}
    for name, value in values.values().items():
        try:
            sizes[name] = len(json.dumps(value).encode())
        except TypeError:
            lacks = "contains a value that JSON lacks, such as a date; write it as text, in quotes"
            raise InputError(f"{name}={value!r} {lacks}") from None
    if sum(sizes.values()) > _PARAMETER_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        raise InputError(
            f"the parameters are {sum(sizes.values()):,} bytes as JSON, and {largest} alone is "
            f"{sizes[largest]:,}; a task accepts {_PARAMETER_BYTES:,} in total: shorten it"
        )


def _check_consistency(values: ParameterSet) -> None:
    _check_size(values)
    for group in (values.machines, values.registry, values.job):
        resource_names.check_names(vars(group))
    resource_names.check_tensorboard(values.job.tensorboard, values.job.service_account)
    kind, location = parse_source(values.records.source)
    uris = {
        "data_dir": values.records.data_dir,
        "source": kind.uri(location),
        "records_store": values.records.records_store,
        "warm_start": values.training.warm_start,
        "resume_from": values.pipeline.resume_from,
    }
    for name, uri in uris.items():
        resource_names.check_uri(name, uri)
    training, records = values.training, values.records
    model = open_model(training.model, training.model_options)
    if model.takes not in ("", kind.contents):
        others = " or ".join(
            name for name, options in MODELS.items() if options.takes == kind.contents
        )
        raise InputError(
            f"model={training.model!r} takes {model.takes}, but source={records.source!r}; use a "
            f"model of {kind.contents} ({others}), or a source of {model.takes} "
            f"({list_forms(model.takes)})"
        )
    model.check_images(records.image_size, records.channels)
    texts = [column for column in records.columns if column.get("type") == "text"]
    model.check_texts({str(text.get("name")): text.get("embedding", 0) for text in texts})
    check_label_options(kind_of(records.label), training, values.gate, task=records.task)
    if classes := kind.check_options(records):
        check_floors(values.gate.class_floors, classes)
    if training.warm_start == CHAMPION and not values.registry.model_name:
        raise InputError("warm_start='champion' needs a registered model; give its model_name")
    check_job(training, values.machines, values.pipeline, values.job)


def with_parameters(
    body: Callable[..., None], *arguments: Any, topics: Mapping[str, type] = TOPICS
) -> Callable[..., None]:
    """Return a pipeline function whose signature declares all parameters of the topics.

    The function calls `body` with a dictionary of the parameters' channels, and `arguments`. KFP
    reads names, types and defaults from the signature, and descriptions from the docstring. Each
    description begins with its topic, because the console lists parameters by name.
    """
    declared = list_parameters(topics)
    topic_of = {group: topic.capitalize() for topic, group in topics.items()}
    lines = [f"{inspect.getdoc(body)}\n\nArgs:"]
    signature = []
    for name, (group, field) in declared.items():
        lines.append(f"    {name}: [{topic_of[group]}] {field.metadata['help']}")
        kind, default = fields.type_of(group, name), fields.default_of(field)
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature.append(inspect.Parameter(name, positional, default=default, annotation=kind))

    def function(*channels: Any) -> None:
        body(dict(zip(declared, channels, strict=True)), *arguments)

    function.__name__ = body.__name__
    function.__doc__ = "\n".join(lines)
    function.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    return function
