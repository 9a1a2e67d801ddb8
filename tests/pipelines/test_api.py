"""The functions for notebooks do what their synopsis says."""

import inspect
import textwrap

import numpy as np
import pytest

from pipelines import api
from tests.refusals import refused
from vertex.errors import InputError

SYNOPSIS = textwrap.dedent(inspect.getdoc(api).partition("\n\n")[2].partition("\n\nA mistake")[0])


@pytest.mark.slow
def test_synopsis_plans_compiles_runs_and_loads_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(SYNOPSIS, names)
    assert [pool["replica_count"] for pool in names["pools"]] == [1, 3]
    assert names["path"].read_text() == (tmp_path / "build" / "digits.yaml").read_text()
    run = names["run"]
    assert (run.state, run.verdict, run.parameters["epochs"]) == ("SUCCEEDED", "accepted", 3)
    assert api.results() == api.results(run.name) == run
    assert run.metrics["accuracy"] > 0.5
    images = np.zeros((2, 8, 8, 1), np.uint8)
    assert names["model"](images).shape == (2, 10)


def test_invalid_arguments_raise_an_input_error(elsewhere, tmp_path):
    assert "no recipe 'digts'; did you mean 'digits'" in refused(api.load, "digts")
    with pytest.raises(InputError, match=r"^values: unknown parameter 'epoch'; did you mean"):
        api.run(api.load("digits"), {"epoch": 3})
    assert "no run 'nothing' in the folder runs" in refused(api.results, "nothing")
    assert not list(tmp_path.iterdir())
