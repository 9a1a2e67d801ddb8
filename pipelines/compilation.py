"""Compile a recipe to the YAML that Vertex AI and this machine run: build/<recipe>.yaml."""

import re
import tempfile
from pathlib import Path
from typing import Any

from kfp import compiler, dsl

from components.planning.worker_pools import GPU_IMAGE, IMAGE
from pipelines.package import read_images
from pipelines.parameters import with_parameters
from pipelines.prediction_pipeline import batch_prediction
from pipelines.recipe import BATCH_TOPICS, Recipe, to_id
from pipelines.training_pipeline import training
from trainer.data import storage
from vertex.errors import InputError
from vertex.facts import resource_names

_UNORDERED_DEFAULT = re.compile(r"^(#    \w+: (?:list|dict)) \[Default: .*\]$", re.MULTILINE)


def write_yaml(
    recipe: Recipe,
    output_directory: Path,
    image: str = "",
    gpu_image: str = "",
    *,
    batch: bool = False,
) -> Path:
    """Compile a recipe as `api.compile` does; raise InputError for an invalid image name.

    A file that already has the same content is left unchanged; any other is replaced atomically.
    """
    path = output_directory / f"{recipe.batch_name if batch else recipe.name}.yaml"
    try:
        existing = storage.read(str(path)).decode("utf-8", "replace") if path.exists() else ""
        previous, previous_gpu = read_images(path)
        image, gpu_image = image or previous or IMAGE, gpu_image or previous_gpu
        text = (
            compile_batch_yaml(recipe, image) if batch else compile_yaml(recipe, image, gpu_image)
        )
        if text != existing:
            path.parent.mkdir(parents=True, exist_ok=True)
            storage.write_atomically(str(path), text.encode(), shared=True)
    except OSError as error:
        raise InputError(
            f"{path} can't be written ({error.strerror}); use another folder"
        ) from None
    return path


def compile_yaml(recipe: Recipe, image: str, gpu_image: str = "") -> str:
    """Return the YAML of a recipe, which is always the same; raise InputError as `write_yaml`."""
    values = recipe.parameters.values()
    if "image_uri" not in recipe.given:
        values["image_uri"] = image
    given = sorted(recipe.given)
    function = with_parameters(training, given, recipe.run_options, recipe.search)
    text = _compile(function, f"training-{to_id(recipe.name)}", recipe.name, values, image)
    gpu_image = recipe.parameters.machines.gpu_image_uri or gpu_image or image
    resource_names.check("image", gpu_image, "gpu_image")
    return text.replace(f"        image: {GPU_IMAGE}\n", f"        image: {gpu_image}\n")


def compile_batch_yaml(recipe: Recipe, image: str) -> str:
    """Return the YAML of a recipe's batch prediction."""
    values = recipe.batch_values({}, origin=f"{recipe.name}.toml: [batch]")
    function = with_parameters(batch_prediction, recipe.run_options, topics=BATCH_TOPICS)
    name = f"prediction-{to_id(recipe.name)}"
    return _compile(function, name, recipe.batch_name, values, image)


def _compile(function: Any, name: str, title: str, values: dict[str, Any], image: str) -> str:
    """Compile a pipeline function, with `values` as its parameters' defaults.

    `name` is also that of its package in Artifact Registry.
    """
    resource_names.check("image", image)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pipeline.yaml"
        compiler.Compiler().compile(
            dsl.pipeline(function),
            str(path),
            pipeline_name=name,
            pipeline_display_name=title,
            pipeline_parameters=values,
        )
        text = path.read_text(encoding="utf-8")
    # KFP's leading comment shows defaults of lists and dicts in an order that varies.
    text = _UNORDERED_DEFAULT.sub(r"\1", text)
    # The components' image is set when they are defined; KFP has no way to set it later.
    for key in ("        image", "constant"):
        text = text.replace(f"{key}: {IMAGE}\n", f"{key}: {image}\n")
    return text
