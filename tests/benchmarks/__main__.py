"""`make benchmark` or `python -m tests.benchmarks NAME ...`: one table of all benchmarks, or some.

Each ratio is measured side by side within this run; the absolute figures beside it are this
machine's. A ratio below its goal is marked, and changes nothing else. A benchmark that fails leaves
the rows of the others; the exit code is then 1.
"""

import importlib
import os
import sys
import traceback
from pathlib import Path

from rich.console import Console
from rich.table import Table


def main(names: list[str]) -> None:
    """Run the benchmarks named, or all."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    console = Console()
    table = Table("benchmark", "ratio", "goal", "", "measured here")
    files = Path(__file__).parent.glob("*.py")
    benchmarks = sorted(file.stem for file in files if "\ndef rows(" in file.read_text())
    for name in names:
        if name not in benchmarks:
            sys.exit(f"error: no benchmark is called {name!r}; there are {', '.join(benchmarks)}")
    failed = []
    for name in names or benchmarks:
        console.print(f"measuring {name} ...")
        try:
            found = importlib.import_module(f"tests.benchmarks.{name}").rows()
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        for what, ratio, goal, figures in found:
            at_most = "peak memory" in what
            mark = "reached" if (ratio <= goal if at_most else ratio >= goal) else "missed"
            goal = f"{'<=' if at_most else '>='} {goal}"
            console.print(f"  {what}: {ratio:.2f} ({goal} {mark}); {figures}", soft_wrap=True)
            table.add_row(what, f"{ratio:.2f}", goal, mark, figures)
    console.print(table)
    if failed:
        sys.exit(f"error: {', '.join(failed)} failed; the tracebacks are above")


if __name__ == "__main__":
    main(sys.argv[1:])
