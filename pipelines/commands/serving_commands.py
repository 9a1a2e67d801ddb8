"""The commands `serve`, `predict` and `monitor`: predictions, and drift of their requests."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from pipelines import instance_files
from pipelines import recipe as recipes
from pipelines.commands.arguments import (
    RUNS,
    ModelName,
    RecipeName,
    RunsDirectory,
    load_table_recipe,
)
from pipelines.local.local_programs import component_environment
from pipelines.printing import say, show_table
from trainer import quiet
from trainer.data.schema import find_training_data
from trainer.data.tables.columns import list_columns
from trainer.serving import LOG_VARIABLE, PORT, PREDICT_ROUTE, VERSION_VARIABLE
from vertex.errors import InputError, escape_controls
from vertex.formats import count

if TYPE_CHECKING:
    from trainer.evaluation.drift import Drifts

Ask = Callable[[list[Any]], dict[str, Any]]
"""A function that maps instances to the body of the response: predictions, or an error."""

_ENDPOINT = re.compile(r"(projects/[^/]+/locations/(?P<region>[^/]+)/endpoints/)?[a-z0-9-]+")
_BODY_BYTES = 1_500_000
"""Size of the largest request that a shared public endpoint accepts."""
_SHOWN = 5
_SECONDS = 60.0
_EXAMPLE = "http://127.0.0.1:8080"
# In two lines, which leave 35 of 80 characters for the name of a column.
TITLES = ("Index", "By\nchance", "Distance", "Missing\nbefore", "Missing\nnow")


def serve(
    recipe: RecipeName,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0: any free port.")
    ] = PORT,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Append requests to a file, up to 64 MB, which `monitor` reads; only for models "
            "of tables.",
            show_default=False,
        ),
    ] = None,
    model_name: ModelName = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Serve a recipe's champion on this machine until Ctrl-C, as the serving image does."""
    from pipelines.local import local_registry

    if log is not None:
        load_table_recipe(recipe, "--log")
    directory = runs_directory or RUNS
    version = local_registry.fetch_champion(recipe, model_name, directory)
    say(f"loading {version.name}; Ctrl-C ends the server")
    environment = {
        **component_environment(),
        "AIP_STORAGE_URI": version.artifact_uri,
        "AIP_HTTP_PORT": str(port),
        VERSION_VARIABLE: version.name,
        LOG_VARIABLE: log or "",
    }
    sys.stdout.flush()
    # Replace this process: the server gets its signals, and no child can outlive it.
    os.execve(sys.executable, [sys.executable, "-m", "trainer.serving"], environment)  # noqa: S606


def predict(
    recipe: RecipeName,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Image files, .csv files with a header, or .jsonl files with an instance per "
            "line, in the form that a server accepts.",
        ),
    ],
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL|ID",
            help="Send requests to a server, given by the URL that `serve` prints, or to an "
            "endpoint of Vertex AI; default: load the champion on this machine.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a line of JSON per instance, with all probabilities."),
    ] = False,
    model_name: ModelName = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Print the predictions of a recipe's model for images or rows in files."""
    loaded = recipes.load(recipe)
    directory = runs_directory or RUNS
    if endpoint is not None and (model_name or runs_directory):
        raise InputError("--endpoint excludes --model-name and --runs-directory")
    ask, columns = (
        _load_champion(recipe, model_name, directory)
        if endpoint is None
        else (_connect_server(endpoint), None)
    )
    named_instances = [
        instance for file in files for instance in instance_files.read(loaded, file, columns)
    ]
    if not named_instances:
        raise InputError(f"{', '.join(files)}: no instances found; give a file that is not empty")
    predictions: list[tuple[str, dict[str, Any]]] = []
    for chunk in _cut_requests(named_instances):
        names, instances = zip(*chunk, strict=True)
        predictions += zip(names, _parse_predictions(ask(list(instances)), names), strict=True)
    if as_json:
        for name, prediction in predictions:
            print(json.dumps({"instance": name, **prediction}))
        return
    rows = [{"Instance": name, **_format_answer(prediction)} for name, prediction in predictions]
    titles = list(rows[0])
    numbers = [title for title in titles if title not in ("Instance", "Label", "Labels")]
    show_table(titles, [list(row.values()) for row in rows], right=numbers)


def _format_answer(prediction: dict[str, Any]) -> dict[str, str]:
    """Return the cells of a table with what a model answers to an instance, by title."""
    # The answer itself, then what is said about it.
    order = sorted(prediction, key=lambda name: (name not in ("label", "value"), name == "high"))
    cells = {
        name.capitalize(): value if isinstance(value, str) else f"{value:.6g}"
        for name, value in ((name, prediction[name]) for name in order)
        if name not in ("key", "model_version") and not isinstance(value, list)
    }
    if "labels" in prediction:
        cells["Labels"] = ", ".join(prediction["labels"]) or "none"
    elif probabilities := prediction.get("probabilities"):
        cells["Probability"] = f"{max(probabilities):.4f}"
    return cells


def _load_champion(
    recipe: str, model_name: str | None, directory: Path
) -> tuple[Ask, list[str] | None]:
    """Load the champion on this machine; return what to ask, and the columns that it takes."""
    from pipelines.local import local_registry

    version = local_registry.fetch_champion(recipe, model_name, directory)
    quiet.import_tensorflow()
    from trainer.serving.instances import RequestError
    from trainer.serving.predictor import Predictor

    predictor = Predictor(version.name)
    predictor.load(version.artifact_uri)

    def ask(instances: list[Any]) -> dict[str, Any]:
        try:
            request = predictor.preprocess({"instances": instances})
            return predictor.postprocess(predictor.predict(request))
        except RequestError as error:
            return error.body

    dataset = find_training_data(version.artifact_uri)
    return ask, [column.name for column in list_columns(dataset)] if dataset else None


def _connect_server(endpoint: str) -> Ask:
    """Return a function that asks a server at a URL, or an endpoint of Vertex AI."""
    if "://" in endpoint:
        bare = not urlsplit(endpoint).path.strip("/")
        url = f"{endpoint.rstrip('/')}{PREDICT_ROUTE}" if bare else endpoint
        return lambda instances: _post(url, instances)
    match = _ENDPOINT.fullmatch(endpoint)
    if not match:
        raise InputError(
            f"--endpoint {endpoint!r} is neither a URL, such as {_EXAMPLE}, nor the ID "
            "or the name of an endpoint: projects/P/locations/L/endpoints/ID"
        )
    from pipelines.project import settings
    from pipelines.project.connection import Connection
    from vertex.client.cloud_errors import translated
    from vertex.client.vertex_client import add_scheme

    resolved = settings.load({}, os.environ).require("project")
    name = endpoint if match["region"] else f"{resolved.parent}/endpoints/{endpoint}"
    host = f"https://{match['region'] or resolved.region}-aiplatform.googleapis.com"
    url = f"{add_scheme(resolved.endpoint) or host}/v1/{name}:predict"
    connection = Connection(resolved)

    def ask(instances: list[Any]) -> dict[str, Any]:
        with translated(f"asking endpoint {endpoint}"):
            return connection.send_request("POST", url, json={"instances": instances}).json()

    return ask


def _post(url: str, instances: list[Any]) -> dict[str, Any]:
    """Send instances to a server that takes no credentials."""
    import requests  # type: ignore[import-untyped]

    from vertex.client.cloud_errors import CloudError

    # With its argument json, requests refuses numbers such as 1e999 without saying where they are.
    body = json.dumps({"instances": instances})
    kind = {"Content-Type": "application/json"}
    try:
        response = requests.post(url, data=body, headers=kind, timeout=_SECONDS)
        answer = response.json()
    except requests.JSONDecodeError:
        raise CloudError(f"{url} answers {response.status_code} {response.reason}") from None
    except requests.RequestException as error:
        if isinstance(error, ValueError):
            raise InputError(f"--endpoint {url!r} is not a URL, such as {_EXAMPLE}") from None
        raise InputError(
            f"--endpoint {url}: no server answers ({type(error).__name__}); start one with "
            "`python -m pipelines serve`"
        ) from None
    if response.status_code not in (200, 400):
        raise CloudError(f"{url} answers {response.status_code}: {answer.get('error', '')}")
    return answer


def _cut_requests(named_instances: Sequence[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """Divide instances, each with its name, into requests that a server accepts."""
    from trainer.serving.instances import BATCH

    chunk: list[tuple[str, Any]] = []
    left = _BODY_BYTES
    for name, instance in named_instances:
        size = len(json.dumps(instance))
        if chunk and (size > left or len(chunk) == BATCH):
            yield chunk
            chunk, left = [], _BODY_BYTES
        chunk.append((name, instance))
        left -= size + 2
    yield chunk


def _parse_predictions(body: dict[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the predictions of a response; raise InputError, with the files' names, for errors."""
    if "predictions" in body:
        return body["predictions"]
    refused = body.get("instances", [])
    if not refused:
        raise InputError(str(body.get("error", "the server's answer contains no predictions")))
    listed = "; ".join(
        f"{names[instance['index']]} {instance['error']}" for instance in refused[:_SHOWN]
    )
    more = len(refused) - _SHOWN
    raise InputError(listed + (f"; and {more} more" if more > 0 else ""))


def monitor(
    recipe: RecipeName,
    log: Annotated[str, typer.Argument(metavar="LOG", help="File that `serve --log` wrote.")],
    threshold: Annotated[
        float,
        typer.Option(
            min=0.02,
            help="Population stability index above which a column has drifted; by convention 0.1 "
            "is small and 0.25 large.",
        ),
    ] = 0.1,
    model_name: ModelName = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Compare the requests to a recipe's champion with its training data, column by column.

    The exit code is 1 if a column has drifted by more than the threshold and by more than chance.
    """
    from pipelines.local import local_registry

    load_table_recipe(recipe, "monitor")
    directory = runs_directory or RUNS
    version = local_registry.fetch_champion(recipe, model_name, directory)
    quiet.import_tensorflow()
    from pipelines import request_drift
    from trainer.data import schema, storage
    from trainer.serving import request_log

    before = schema.load_dataset(storage.join(version.artifact_uri, schema.EXTRA_ASSETS))
    drifts, total = request_drift.measure(before, request_log.read(log))
    rows = []
    for column in drifts.columns:
        figures = (f"{figure:.3f}" for figure in (column.index, column.noise, column.distance))
        rows.append((column.name, *figures, *(f"{share:.1%}" for share in column.missing)))
    show_table(("Column", *TITLES), rows, right=TITLES)
    say(
        f"{count(total, 'request')} compared with the training data of {version.name}, "
        f"threshold {threshold:g}: " + escape_controls("; ".join(_describe(drifts, threshold)))
    )
    if any(column.exceeds(threshold) for column in drifts.columns):
        raise typer.Exit(1)


def _describe(drifts: "Drifts", threshold: float) -> Iterator[str]:
    """Yield what is known about the columns: which have drifted, and which can't be judged."""
    drifted = [column for column in drifts.columns if column.exceeds(threshold)]
    if drifted:
        yield "drift in " + ", ".join(f"{column.name} {column.index:.2f}" for column in drifted)
    unknown = []
    for column in drifts.columns:
        if column.noise > threshold and column not in drifted:
            needed = column.count_needed_rows(threshold)
            enough = f"at least {needed:,}" if needed else "too few training rows, too"
            unknown.append(f"{column.name} ({enough})")
    if steady := len(drifts.columns) - len(drifted) - len(unknown):
        yield f"no drift in {count(steady, 'column')}"
    if unknown:
        yield f"too few rows to tell for {', '.join(unknown)}"
    if drifts.not_compared:
        yield drifts.format_not_compared()
