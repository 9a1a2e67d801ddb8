"""Compile recipes for Vertex AI.

python compile.py                        every recipe, to build/<recipe>.yaml
python compile.py digits --image URI     one recipe, with the image that it will run in
python compile.py digits --upload        one recipe, and upload it to the repository of pipelines
"""

from pipelines import startup

with startup.one_line_errors():
    import typer

    from pipelines.commands import command_line
    from pipelines.commands.recipe_commands import compile_recipes


if __name__ == "__main__":
    with startup.one_line_errors():
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command()(compile_recipes)
        command_line.main(app)
