"""python -m pipelines"""

from pipelines import startup

if __name__ == "__main__":
    with startup.one_line_errors():
        from pipelines.command_line import main

        main()
