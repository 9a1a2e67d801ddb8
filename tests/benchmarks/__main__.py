"""`make benchmark [ONLY=name]`: every benchmark, one table.

Each ratio is measured side by side within this run; the absolute figures beside it are this
machine's. A ratio below its goal is marked, and changes nothing else.
"""

import importlib
import os
import pkgutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table


def main(names: list[str]) -> None:
    """Runs the benchmarks named, or all."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    console = Console()
    table = Table("benchmark", "ratio", "goal", "", "measured here")
    modules = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    benchmarks = sorted(set(modules) - {"__main__", "photos"})
    for name in names:
        if name not in benchmarks:
            sys.exit(f"error: no benchmark is called {name!r}; there are {', '.join(benchmarks)}")
    for name in names or benchmarks:
        module = importlib.import_module(f"tests.benchmarks.{name}")
        console.print(f"measuring {name} ...")
        for what, ratio, goal, figures in module.rows():
            at_most = "peak memory" in what
            reached = ratio <= goal if at_most else ratio >= goal
            sign = "<=" if at_most else ">="
            mark = "reached" if reached else "missed"
            console.print(
                f"  {what}: {ratio:.2f} ({sign} {goal} {mark}); {figures}", soft_wrap=True
            )
            table.add_row(what, f"{ratio:.2f}", f"{sign} {goal}", mark, figures)
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
