"""A recipe to the YAML that Vertex AI and this machine run: build/<recipe>.yaml."""

import re
import tempfile
from pathlib import Path

from kfp import compiler

from pipelines import lint, own_steps, resource_names
from pipelines.package import Package
from pipelines.parameters import PARAMETERS
from pipelines.recipe import Recipe
from pipelines.training import pipeline
from trainer.data import storage
from trainer.errors import InputError
from trainer.machines.worker_pools import IMAGE

_UNORDERED_DEFAULT = re.compile(r"^(#    \w+: (?:list|dict)) \[Default: .*\]$", re.MULTILINE)

_PARAMETER = re.compile(r"^ {6}(\w+):\n(?: {8}.*\n|\n)+", re.MULTILINE)
"""An input of the pipeline in KFP's YAML."""


def write(recipe: Recipe, output_directory: Path, image: str = "") -> Path:
    """Compiles `recipe` to `<output_directory>/<recipe>.yaml`.

    A file that holds these bytes already is not touched; another is replaced at once.

    Args:
        recipe: its values become the defaults of the pipeline's parameters.
        output_directory: made where it is missing.
        image: of components and replicas; empty: the one in the file that is there, else
            `IMAGE`.

    Raises:
        InputError: no image's name, or the directory can't be written to.
        lint.InvalidPipelineError: what was compiled breaks a rule of Vertex AI's.
    """
    path = output_directory / f"{recipe.name}.yaml"
    try:
        present = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        text = compiled(recipe, image or _image_of(path) or IMAGE)
        if text != present:
            output_directory.mkdir(parents=True, exist_ok=True)
            storage.write_whole(str(path), text.encode(), shared=True)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from None
    return path


def compiled(recipe: Recipe, image: str) -> str:
    """Return the YAML of `recipe`, checked; the same bytes each time. Raises as `write` does."""
    resource_names.check("image", image)
    values = recipe.parameters.values()
    if "image_uri" not in recipe.given:
        values["image_uri"] = image
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pipeline.yaml"
        compiler.Compiler().compile(
            pipeline(
                {name: own_steps.load(name) for name in recipe.operation.steps},
                sorted(recipe.given),
                recipe.operation,
            ),
            str(path),
            pipeline_name=f"training-{recipe.name.replace('_', '-').lower()}",
            pipeline_display_name=recipe.name,
            pipeline_parameters=values,
        )
        text = path.read_text(encoding="utf-8")
    # KFP's leading comment shows such defaults in an order that changes from run to run.
    text = _UNORDERED_DEFAULT.sub(r"\1", text)
    text = _by_topic(text)
    # The components' image is set when they are defined; KFP has no way to set it later.
    for key in ("        image", "constant"):
        text = text.replace(f"{key}: {IMAGE}\n", f"{key}: {image}\n")
    lint.check_pipeline(text)
    return text


def _by_topic(text: str) -> str:
    """Puts the pipeline's parameters in the order of PARAMETERS; KFP writes them by name."""
    head, heading, rest = text.partition("\n  inputDefinitions:\n    parameters:\n")
    found = {match[1]: match[0] for match in _PARAMETER.finditer(rest)}
    assert found.keys() == PARAMETERS.keys()
    ordered = "".join(found[name] for name in PARAMETERS)
    return head + heading + ordered + rest[len(ordered) :]


def _image_of(path: Path) -> str:
    """Return the image of the components in a compiled pipeline; empty where there is none."""
    try:
        return Package(path).image
    except (InputError, LookupError, TypeError, AttributeError):
        return ""
