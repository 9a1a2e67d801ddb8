"""The commands `promote` and `deploy`: a recipe's champion in the registry and online."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import recipe as recipes
from pipelines.commands.arguments import (
    GivenSettings,
    ModelName,
    RecipeName,
    RunsDirectory,
    load_table_recipe,
    runs_folder,
    with_settings,
)
from pipelines.printing import say, show_table
from pipelines.project.settings import Settings
from vertex.client.cloud_errors import translated
from vertex.errors import InputError

if TYPE_CHECKING:
    from pipelines.project.connection import Connection


@with_settings
def promote(
    settings: GivenSettings,
    recipe: RecipeName,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="N", help="Make this version the champion."),
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Make the previous champion the champion again.")
    ] = False,
    model_name: ModelName = None,
    local: Annotated[
        bool, typer.Option("--local", help="Use the Model Registry on this machine.")
    ] = False,
    runs_directory: RunsDirectory = None,
) -> None:
    """Promote a version of a recipe's model, roll the last promotion back, or list versions."""
    from pipelines.local import local_registry

    directory = runs_folder(runs_directory, local=local)
    if runs_directory is not None and not directory.is_dir():
        raise InputError(f"--runs-directory {str(directory)!r}: there is no such folder")
    if local and (given := settings.options()):
        raise InputError(f"{given[0]} is for the registry of Vertex AI; leave it out with --local")
    if version and rollback:
        raise InputError("--version and --rollback exclude each other; give one")
    model = local_registry.model_of(recipe, model_name)
    with contextlib.ExitStack() as stack:
        repeat = f"`promote {recipe}` lists the champion"
        stack.enter_context(translated(f"calling the Model Registry for {model!r}", repeat=repeat))
        if local:
            registry = stack.enter_context(local_registry.opened(directory))
        else:
            registry = settings.connect().registry
        if version:
            champion = registry.promote(model, version)
            say(f"{champion.name} is the champion of {model}")
        elif rollback:
            champion, withdrawn = registry.roll_back(model)
            after = f", after {withdrawn.name}" if withdrawn else ""
            say(f"{champion.name} is the champion of {model} again{after}")
        elif versions := registry.list_versions(model):
            rows = [
                (
                    entry.version,
                    ", ".join(sorted(entry.aliases)),
                    entry.labels.get("run", ""),
                    entry.artifact_uri,
                )
                for entry in versions
            ]
            show_table(("Version", "Aliases", "Run", "Model"), rows)
        else:
            say(f"{model} has no version yet")


@with_settings
def deploy(
    settings: GivenSettings,
    recipe: RecipeName,
    traffic: Annotated[
        int | None,
        typer.Option(metavar="PERCENT", help="The champion's share of traffic.", min=0, max=100),
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Give all traffic to the previous version.")
    ] = False,
    monitor: Annotated[
        bool,
        typer.Option("--monitor", help="Have Vertex AI compare requests with the training data."),
    ] = False,
    undeploy: Annotated[
        bool, typer.Option("--undeploy", help="Remove all versions from the endpoint.")
    ] = False,
) -> None:
    """Serve a recipe's champion online, with a share of traffic beside the previous version."""
    from pipelines.cloud import monitoring
    from pipelines.runs import vertex_jobs
    from vertex.client.cloud_errors import Change, translated
    from vertex.facts import regions
    from vertex.registry.endpoints import Endpoints

    if sum([traffic is not None, rollback, monitor, undeploy]) > 1:
        raise InputError("give only one of --traffic, --rollback, --monitor and --undeploy")
    loaded = load_table_recipe(recipe, "--monitor") if monitor else recipes.load(recipe)
    model = loaded.parameters.registry.model_name
    if not model:
        raise InputError(f"{recipe} registers no model: its model_name is empty; set it")
    connection = settings.connect()
    labels = connection.settings.labels
    endpoints = Endpoints(connection.endpoints, connection.registry, labels, say)
    repeat = "repeat the command, which is safe"
    with translated(f"serving {model!r}", repeat=repeat), _explained_if_interrupted(recipe):
        if rollback:
            say(f"{model}@{endpoints.roll_back(model)} has all traffic")
        elif monitor:
            regions.check_monitoring(connection.settings.region)
            job = monitoring.set_up(connection, loaded, endpoints.fetch_endpoint(model))
            pending = vertex_jobs.state_of(job) == monitoring.PENDING
            state = "will be monitored once its job runs" if pending else "is monitored"
            say(f"{model} {state}: {job.name}", *monitoring.describe(loaded))
            return
        elif undeploy:
            _undeploy(connection, endpoints, model)
            return
        else:
            _deploy_champion(connection.settings, endpoints, loaded, traffic)
        with Change() as change:
            change.begun = True
            _show(model, endpoints.fetch_endpoint(model))


def _undeploy(connection: "Connection", endpoints: Any, model: str) -> None:
    """End the monitoring and the deployments of a model."""
    from pipelines.cloud import monitoring

    endpoint, failure = endpoints.fetch_endpoint(model), None
    try:
        monitoring.remove(connection, endpoint)
    except Exception as error:  # The machines cost more.
        failure = error
    certain = endpoints.remove(model)
    if failure:
        say(f"{model} is no longer served, but may still be monitored")
        raise failure
    if certain:
        say(f"{model} is no longer served or billed")
    else:
        say(
            f"{model} is no longer served; the server lists no operations: if a deployment was "
            "under way, repeat the command after its end"
        )


def _deploy_champion(
    settings: Settings, endpoints: Any, loaded: recipes.Recipe, traffic: int | None
) -> None:
    """Deploy the champion unless it is deployed; say the price of its machines first."""
    from vertex.facts import regions
    from vertex.machines import price_table

    version = endpoints.registry.fetch_champion(loaded.parameters.registry.model_name)
    serving, prices = loaded.run_options.serving, price_table.load_table()
    regions.check_serving_machine(serving.machine_type, settings.region)
    deployed = endpoints.is_deployed(version)
    if not deployed:
        price = price_table.describe_serving_price(
            serving.machine_type, serving.min_replicas, prices, most=serving.max_replicas
        )
        say(f"{price}, at the prices of {prices.region}; a deployment takes minutes")
    key = loaded.parameters.job.encryption_spec_key_name or settings.encryption_key
    endpoints.deploy(version, serving.resources, traffic, key)
    already = " already, and keeps its machines" if deployed else ""
    say(f"{version.name} is deployed{already}")


@contextlib.contextmanager
def _explained_if_interrupted(recipe: str) -> Iterator[None]:
    """Say after Ctrl-C that Vertex AI completes what it has begun."""
    try:
        yield
    except KeyboardInterrupt:
        say(
            "Vertex AI continues what has begun, and bills deployed versions. To remove them: "
            f"python -m pipelines deploy {recipe} --undeploy"
        )
        raise


def _show(model: str, endpoint: Any) -> None:
    """Print the versions that an endpoint serves, the last deployed first."""
    from vertex.registry.endpoint_changes import shares

    deployed, rows = {version.id: version for version in endpoint.deployed_models}, []
    for number, share in shares(endpoint).items():
        version, machines = deployed[number], deployed[number].dedicated_resources
        replicas = f"{machines.min_replica_count} to {machines.max_replica_count}"
        kind = f"{replicas} x {machines.machine_spec.machine_type}"
        since = f"{version.create_time:%Y-%m-%d %H:%M}" if version.create_time else ""
        rows.append((f"{model}@{version.model_version_id}", f"{share}%", kind, since))
    show_table(("Version", "Traffic", "Machines", "Since"), rows, right=["Traffic"])
