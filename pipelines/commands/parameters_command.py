"""The command `parameters`."""

from typing import Annotated

import typer

from pipelines import parameter_list


def list_parameters(
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD",
            help=f"Show only matching parameters: a topic ({', '.join(parameter_list.TOPICS)}), or "
            "part of a name or description.",
        ),
    ] = None,
) -> None:
    """List the pipeline's parameters, which --set sets."""
    parameter_list.show(word or "")
