"""Machine types, accelerators and boot disks, read from machine_types.toml.

A new machine type is an entry there, of a known series a number of vCPUs; prices.toml has the rates
of its price.

types()["n1-standard-8"].attached      # {"NVIDIA_TESLA_T4": (1, 2, 4), ...}
check_machine("chief_machine_type", "n1-standard-32", "NVIDIA_TESLA_T4", 1)
# InputError: ... can't have 1 x NVIDIA_TESLA_T4; set accelerator_count to 2 or 4
"""

import dataclasses
import functools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vertex.errors import InputError
from vertex.formats import choices, suggest


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineType:
    """A machine type."""

    name: str
    series: str  # as prices are by series
    vcpus: int = 0
    memory_gb: float = 0.0
    disks: tuple[str, ...] = ()  # boot disks that it supports
    accelerator: str = ""  # its built-in accelerator; empty: none
    count: int = 0  # number of built-in accelerators
    # Numbers of accelerators that can be attached, by accelerator.
    attached: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    strategies: tuple[str, ...] = ()  # scheduling strategies that provide it; (): all
    # Quota for its vCPUs, without the prefix custom_model_training_; empty: not documented.
    quota: str = ""
    refused: str = ""  # why this project does not train on it; empty: it does


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A kind of GPU."""

    name: str
    capability: float  # its CUDA compute capability, by which libraries identify it
    quota: str  # quota for it, without the prefix custom_model_training_
    quota_title: str  # name of the quota in the documentation
    regions: tuple[str, ...]  # where training has it
    flex_start: bool = False  # Dynamic Workload Scheduler provides it
    peered: bool = True  # its machines can be peered with a network
    refused: str = ""  # why this project does not train on it; empty: it does


@functools.cache
def load_content() -> dict[str, Any]:
    """Return the content of machine_types.toml."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@functools.cache
def types() -> dict[str, MachineType]:
    """Return all documented machine types of training, by name."""
    found = (kind for line in load_content()["series"] for kind in _read_series(line))
    return {machine_type.name: machine_type for machine_type in found}


@functools.cache
def serving_types() -> dict[str, MachineType]:
    """Return the machine types without accelerators for batch prediction and endpoints, by name."""
    found = (kind for line in load_content()["series"] for kind in _read_sizes(line, "serves"))
    return {machine_type.name: machine_type for machine_type in found}


@functools.cache
def accelerators() -> dict[str, Accelerator]:
    """Return all documented accelerators, by name."""
    return {line["name"]: Accelerator(**_freeze(line)) for line in load_content()["accelerators"]}


def find_step_type() -> MachineType:
    """Return the machine type of a pipeline's step by default."""
    return types()[load_content()["step"]]


def list_offered_accelerators() -> tuple[str, ...]:
    """Return the names of the accelerators that a job can use, sorted."""
    offered = (name for name, accelerator in accelerators().items() if not accelerator.refused)
    return tuple(sorted(offered))


def find_types(accelerator: str, count: int) -> list[MachineType]:
    """Return the machine types that can have `count` of an accelerator."""
    return [
        machine_type
        for machine_type in types().values()
        if (accelerator, count) == (machine_type.accelerator, machine_type.count)
        or count in machine_type.attached.get(accelerator, ())
    ]


def disk_types() -> tuple[str, ...]:
    """Return the types of boot disks; the first is Vertex AI's default."""
    return tuple(disk["name"] for disk in load_content()["disks"])


def _read_series(line: Mapping[str, Any]) -> Iterator[MachineType]:
    """Yield a series' machine types of training."""
    yield from _read_sizes(line, "trains")
    common = _read_common(line)
    for name, (vcpus, gb, *accelerators) in line.get("machines", {}).items():
        kind, count = accelerators or ("", 0)
        yield MachineType(
            name=name, vcpus=vcpus, memory_gb=gb, accelerator=kind, count=count, **common
        )
    for name in line.get("tpus", ()):
        yield MachineType(name=name, **common)


def _read_sizes(line: Mapping[str, Any], use: str) -> Iterator[MachineType]:
    """Yield a series' machine types whose memory is a multiple of their vCPUs."""
    for kind, sizes in line.get(use, {}).items():
        for vcpus in sizes:
            name = f"{line['name']}-{kind}-{vcpus}"
            gb = line.get("exceptions", {}).get(name, vcpus * line["memory"][kind])
            attached = {
                accelerator: tuple(counts)
                for group in load_content()["attached"]
                if name in group["machines"]
                for accelerator, counts in group.items()
                if accelerator != "machines"
            }
            yield MachineType(
                name=name, vcpus=vcpus, memory_gb=gb, attached=attached, **_read_common(line)
            )


def _read_common(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all machine types of a series have in common."""
    names = ("disks", "strategies", "quota", "refused")
    return {"series": line["name"]} | _freeze({name: line[name] for name in names if name in line})


def _freeze(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in line.items()}


def check_type(option: str, name: str) -> MachineType:
    """Return a machine type; raise InputError for one that this project does not train on.

    `option` names it in messages.
    """
    machine_type = types().get(name)
    if machine_type is None:
        known = [name for name, machine_type in types().items() if not machine_type.refused]
        hint = suggest(name, known, f"; use one such as {known[0]!r}")
        raise InputError(
            f"{option}={name!r} is not a machine type of training on Vertex AI "
            f"(configure-compute, {load_content()['date']}){hint}"
        )
    if machine_type.refused:
        raise InputError(
            f"{option}={name!r} {machine_type.refused}; use one such as {find_step_type().name!r}"
        )
    return machine_type


def check_machine(option: str, name: str, accelerator: str, count: int) -> None:
    """Raise InputError if a machine can't have `count` of an accelerator, or none for 0.

    `option` names the machine type in messages.
    """
    machine_type = check_type(option, name)
    wanted = f"{count} x {accelerator}" if count else "none"
    if machine_type.accelerator:
        if (accelerator, count) != (machine_type.accelerator, machine_type.count):
            built_in = f"{machine_type.count} x {machine_type.accelerator}"
            raise InputError(
                f"{option}={name!r} comes with {built_in}, but {wanted} was asked for; set "
                f"accelerator_type={machine_type.accelerator} and "
                f"accelerator_count={machine_type.count}"
            )
        return
    if not count:
        return
    if accelerator in machine_type.attached:
        counts = machine_type.attached[accelerator]
        if count not in counts:
            raise InputError(
                f"{option}={name!r} can't have {wanted}; set accelerator_count to {choices(counts)}"
            )
        return
    fitting = [machine_type.name for machine_type in find_types(accelerator, count)]
    remedy = f"use {choices(fitting[:4])}" if fitting else "set another accelerator_count"
    raise InputError(f"{option}={name!r} can't have {wanted}; {remedy}")


def check_disk(disk: str, machines: Mapping[str, str]) -> None:
    """Raise InputError if a machine does not support the boot disk of all replicas.

    `machines` are machine types by the option that names them.
    """
    supported = [types()[name].disks for name in machines.values()]
    common = [kind for kind in disk_types() if all(kind in disks for disks in supported)]
    for option, name in machines.items():
        if disk not in types()[name].disks:
            remedy = "all replicas have the same disk type; use machines that support a common type"
            if common:
                remedy = f"use {choices(common)}"
            raise InputError(
                f"boot_disk_type={disk!r} is not available on {name} ({option}); {remedy}"
            )
