"""Parse the command line of a replica: input, output and config."""

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.data import storage
from trainer.effects import check_effects
from trainer.fields import build
from trainer.training.config import TrainingConfig, override
from vertex.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A replica's parsed command line."""

    dataset: str
    base_output_directory: str
    config: TrainingConfig
    evaluator_pool: int = 0  # position of the evaluator's worker pool; 0: none
    accelerator_count: int = 0  # accelerators of this replica's machine
    # Values of the config that are given as flags, as text by name.
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)


def parse(arguments: Sequence[str], environment: dict[str, str]) -> Job:
    """Parse a replica's flags; raise InputError for unknown, missing and invalid flags.

    The default of base_output_directory is the parent of AIP_MODEL_DIR, which Vertex AI sets.
    """
    parser = _Parser(
        prog="python -m trainer.task",
        allow_abbrev=False,
        epilog="--NAME=VALUE overrides an option of the config.",
    )
    parser.add_argument("--dataset", required=True, help="Folder with dataset.json (URI).")
    parser.add_argument(
        "--base_output_directory",
        default=environment.get("AIP_MODEL_DIR", "").rstrip("/").rpartition("/")[0],
        help="Folder for model/, checkpoints/ and logs/ (URI); default: AIP_MODEL_DIR's parent.",
    )
    parser.add_argument(
        "--evaluator_pool",
        choices=range(4),
        default=0,
        type=int,
        help="Position of the evaluator's worker pool in the job; 0: there is no evaluator.",
    )
    parser.add_argument(
        "--accelerator_count",
        default=0,
        type=int,
        help="Number of accelerators of this replica's machine; fewer are an error.",
    )
    parser.add_argument("--config", default="", help="Config of the job (URI of a JSON file).")
    parsed, config_flags = parser.parse_known_args(arguments)
    paths = vars(parsed)
    uri = paths.pop("config")
    if not paths["base_output_directory"]:
        raise InputError("no output folder: set --base_output_directory or AIP_MODEL_DIR")
    planned = _read_config(uri) if uri else TrainingConfig()
    values = _parse_values(config_flags)
    config = override(planned, values) if values else planned
    check_effects(config, names=values)
    return Job(config=config, values=values, **paths)


def _parse_values(flags: Sequence[str]) -> dict[str, str]:
    """Return the values of options of the config; a value may be a word of its own."""
    values, words = {}, iter(flags)
    for flag in words:
        name, equals, value = flag.removeprefix("--").partition("=")
        if not equals:
            value = next(words, "--")
        if value.startswith("--"):
            raise InputError(f"{flag!r} has no value; write options of the config as --NAME=VALUE")
        values[name] = value
    return values


def _read_config(uri: str) -> TrainingConfig:
    """Read the config that plan_training checked and wrote."""
    try:
        return build(TrainingConfig, json.loads(storage.read(uri)))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"--config={uri} can't be read: {error}; plan the job again") from None


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises InputError."""

    def error(self, message: str) -> Any:
        raise InputError(message)
