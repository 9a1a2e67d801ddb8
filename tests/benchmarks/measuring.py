"""Measure functions and programs: seconds, core seconds and memory."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import psutil

Row = tuple[str, float, float, str]
"""A comparison: its name, the ratio, the goal, and the figures of this machine."""


def timed(function: Callable, *arguments, **options) -> tuple[float, float]:
    """Return the seconds of a call, and its core seconds, ended child processes included."""
    started, before = time.perf_counter(), core_seconds()
    function(*arguments, **options)
    return time.perf_counter() - started, core_seconds() - before


def core_seconds() -> float:
    """Return how long this process and its ended children kept a core busy."""
    return sum(os.times()[:4])


def in_turns(ways: dict[str, Callable], rounds: int) -> dict[str, np.ndarray]:
    """Call every function once a round; return the results of each, [rounds, ...]."""
    turns = [{name: way() for name, way in ways.items()} for _ in range(rounds)]
    return {name: np.array([turn[name] for turn in turns]) for name in ways}


def median_ratio(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the median ratio of neighbors in time, which share the load of other processes."""
    return np.median(one / other, axis=0)


def run(code: str, *arguments: object) -> str:
    """Run a Python program; return the last line that it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return (done.stdout.splitlines() or [""])[-1]


def peak_megabytes(code: str, *arguments: object) -> float:
    """Return the peak of the proportional set size of a Python program with its children."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])
    watched = psutil.Process(process.pid)
    peak = 0
    while process.poll() is None:
        try:
            each = [watched, *watched.children(recursive=True)]
            peak = max(peak, sum(one.memory_full_info().pss for one in each))
        except psutil.Error:
            continue
        time.sleep(0.01)
    assert process.returncode == 0
    return peak / 1e6
