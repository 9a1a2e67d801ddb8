"""python -m pipelines deploy: a recipe's champion at an endpoint of Vertex AI."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from pipelines import recipe as recipes
from pipelines.cloud.flags import with_settings
from pipelines.cloud.settings import Settings
from pipelines.commands.arguments import RecipeName
from pipelines.commands.monitor_command import check_rows
from pipelines.console import cell, say
from trainer.errors import InputError


@with_settings
def deploy(
    settings: Callable[[], Settings],
    recipe: RecipeName,
    traffic: Annotated[
        int | None,
        typer.Option(metavar="PERCENT", help="Traffic of the champion.", min=0, max=100),
    ] = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Give all traffic to the version before.")
    ] = False,
    monitor: Annotated[
        bool, typer.Option("--monitor", help="Have Vertex AI compare requests with training data.")
    ] = False,
    undeploy: Annotated[
        bool, typer.Option("--undeploy", help="Take all versions off the endpoint.")
    ] = False,
) -> None:
    """Serve a recipe's champion online, beside the version before it, with a share of traffic."""
    from components.cloud_errors import translated
    from components.registry.endpoints import Endpoints
    from pipelines.cloud import monitoring
    from pipelines.cloud.connection import Connection
    from pipelines.machines import cost

    if (traffic is not None) + rollback + monitor + undeploy > 1:
        raise InputError(
            "--traffic, --rollback, --monitor and --undeploy exclude each other: give one"
        )
    loaded = check_rows(recipe, "--monitor") if monitor else recipes.load(recipe)
    model = loaded.parameters.registry.model_name
    if not model:
        raise InputError(f"{recipe} registers no model: its model_name is empty")
    console = Console()
    connection = Connection(settings().require("project"))
    endpoints = Endpoints(connection.endpoints, connection.registry)
    with translated(f"serving {model!r}"):
        if rollback:
            previous = endpoints.roll_back(model)
            say(f"{model}@{previous.version} has all of the traffic")
        elif monitor:
            job = monitoring.set_up(connection, loaded, endpoints.endpoint(model))
            say(f"{model} is monitored: {job.name}", *monitoring.described(job))
            return
        elif undeploy:
            monitoring.remove(connection, endpoints.endpoint(model))
            endpoints.remove(model)
            say(f"{model} is served no more, and billed no more")
            return
        else:
            serving = loaded.operation.serving
            price = cost.serving_price(serving.machine_type, serving.min_replicas, cost.table())
            say(f"{price}; a deployment takes minutes")
            key = loaded.parameters.job.encryption_spec_key_name
            version = endpoints.champion(model)
            endpoints.deploy(version, serving, traffic, key)
            say(f"{version.name} is deployed")
        console.print(_table(model, endpoints.deployed(model)))


def _table(model: str, deployed: Iterable[Any]) -> Table:
    table = Table("Version", Column("Traffic", justify="right"), "Machines", "Since", box=None)
    for one in deployed:
        replicas = f"{one.min_replicas} to {one.max_replicas} x {one.machine_type}"
        table.add_row(
            *map(cell, (f"{model}@{one.version}", f"{one.traffic}%", replicas, one.since))
        )
    return table
