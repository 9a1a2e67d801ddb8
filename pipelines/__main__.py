"""python -m pipelines"""

from pipelines.command_line import main

if __name__ == "__main__":
    main()
