"""A recipe's [search] becomes a StudySpec, and its mistakes are refused before anything starts."""

import dataclasses
import json
import re

import pytest
from google.cloud.aiplatform_v1 import types
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils import json_util

from components.plan_search import plan_search
from components.planning.pipeline_options import JobOptions, PipelineOptions
from components.planning.search_options import SearchOptions, build_study_spec
from components.planning.worker_pools import MachineOptions, build_worker_pool_specs
from pipelines import plan as planning
from pipelines import recipe as recipes
from pipelines.commands import command_line
from pipelines.runs.live_view import draw_curve, make_trial_row
from pipelines.runs.run import read_trials
from tests.refusals import refused
from trainer.training.config import TrainingConfig, override

SEARCH = """
source = "digits"
{more}
[search]
{search}
"""


def load(folder, search, more=""):
    (folder / "mine.toml").write_text(SEARCH.format(search=search, more=more))
    return recipes.load("mine-search", folder)


def test_study_has_the_parameters_with_their_kinds(tmp_path):
    text = """
        metric = "accuracy"
        early_stopping = "median"
        parameters.learning_rate = { min = 1e-4, max = 1e-1, scale = "log" }
        parameters.batch_size = [64, 32]
        parameters.optimizer = ["adam", "sgd"]
        parameters.xla = [false, true]
        parameters.momentum = { min = 0.5, max = 0.9, when = { optimizer = ["sgd"] } }
        parameters."model_options.units" = { min = 16, max = 256 }
    """
    recipe = load(tmp_path, text, 'monitor = "accuracy"')
    assert (recipe.name, recipe.searches) == ("mine-search", True)
    spec = build_study_spec(recipe.run_options.search, recipe.parameters.training)
    assert spec["metrics"] == [{"metric_id": "validation_accuracy", "goal": "MAXIMIZE"}]
    assert spec["measurement_selection_type"] == "BEST_MEASUREMENT"
    assert spec["median_automated_stopping_spec"] == {"use_elapsed_duration": True}
    found = {one["parameter_id"]: one for one in spec["parameters"]}
    rate = {"min_value": 1e-4, "max_value": 1e-1}
    assert found["learning_rate"]["double_value_spec"] == rate
    assert found["learning_rate"]["scale_type"] == "UNIT_LOG_SCALE"
    assert found["batch_size"]["discrete_value_spec"] == {"values": [32, 64]}
    assert found["xla"]["categorical_value_spec"] == {"values": ["false", "true"]}
    units = {"min_value": 16, "max_value": 256}
    assert found["model_options.units"]["integer_value_spec"] == units
    (child,) = found["optimizer"]["conditional_parameter_specs"]
    assert child["parameter_spec"]["parameter_id"] == "momentum"
    assert child["parent_categorical_values"] == {"values": ["sgd"]}
    assert "momentum" not in found


def test_values_of_a_trial_are_text():
    values = {"learning_rate": "0.01", "xla": "true", "model_options.units": "64"}
    config = override(TrainingConfig(), values)
    assert (config.learning_rate, config.xla) == (0.01, True)
    assert config.model_options == {"units": 64}


RATE = "parameters.learning_rate = { min = 1e-4, max = 1e-1 }"


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("trials = 3", "[search]: parameters is empty; give each option of training to search"),
        (f"{RATE}\nparallel = 20", "parallel=20 is more than trials=12"),
        (f'{RATE}\nmetric = "mae"', "[search]: metric='mae' is none of loss, accuracy"),
        (f"{RATE}\nfailed_trials = 13", "failed_trials=13 is more than trials=12; lower it"),
        ("parameters.learning_rate = [1e-11, 2e-11]", "two are 1e-11 apart; Vertex AI takes up"),
        (f"parameters.epochs = {[*range(1, 1002)]}", "of its 1001 values, two are 1 apart"),
        ("parameters.source = ['a', 'b']", "'source' can't be searched"),
        ("parameters.seed = [1, 2]", "'seed' can't be searched"),
        ("parameters.learning_rat = [1.0, 2.0]", "did you mean 'learning_rate'?"),
        ("parameters.epochs = [0, 2]", "epochs=0 is out of range: it must be at least 1"),
        ("parameters.batch_size = [32]", "is not a list of two or more different values"),
        ("parameters.learning_rate = { min = 1, max = 1 }", "are not a range; give numbers"),
        ('parameters.momentum = { min = 0, max = 0.5, scale = "log" }', "needs numbers above 0"),
        ('parameters.momentum = { min = 0.1, max = 0.5, scale = "lg" }', "scale='lg'"),
        (f'{RATE}\nalgorithm = "grid"', "learning_rate has a range; give a list"),
        (
            "parameters.momentum = { min = 0.1, max = 0.5, when = { optimizer = ['sgd'] } }",
            "when: optimizer=['sgd'] is not a list of values that the search has",
        ),
        (
            "parameters.momentum = { min = 0.5, max = 0.99 }",
            "momentum=0.5 has an effect only with optimizer=sgd",
        ),
        (
            'parameters.momentum = [0.5, 0.8]\nparameters.optimizer = ["sgd", "adam"]',
            "momentum=0.5 has an effect only with optimizer=sgd",
        ),
        ('parameters."model_options.unit" = [1, 2]', "did you mean 'model_options.units'?"),
        ("parameters.learning_rate = 3", "neither a list of values nor a table of"),
    ],
)
def test_mistake_in_a_search_is_refused(search, message, tmp_path):
    refusal = refused(load, tmp_path, search)
    assert refusal.startswith("mine.toml: ")
    assert message in refusal


def test_recipe_without_a_search_is_told_one(tmp_path):
    (tmp_path / "mine.toml").write_text('source = "digits"')
    message = refused(recipes.load, "mine-search", tmp_path)
    assert "has no table [search]; add one, such as" in message


def plan(early_stopping="none", **options):
    machines = MachineOptions()
    parameters = {"learning_rate": {"min": 0.1, "max": 0.5}}
    search = SearchOptions(
        parameters=parameters, trials=8, failed_trials=7, early_stopping=early_stopping
    )
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    job_options = JobOptions(timeout="3600s", encryption_spec_key_name=key)
    groups = TrainingConfig(), PipelineOptions(**options), job_options
    values = {name: value for group in groups for name, value in vars(group).items()}
    pools = build_worker_pool_specs(machines, ["--dataset=d", "--base_output_directory=b"])
    planned = plan_search.python_func(
        **values,
        search=dataclasses.asdict(search),
        worker_pool_specs=pools,
        base_output_directory="gs://bucket/run/training",
        rates={"n1-standard-4": 0.5, "pd-ssd": 0},
        run="digits-1",
    )
    return json.loads(planned.job)


def test_planned_job_has_the_worker_pools_of_training():
    job = plan()
    assert (job["max_trial_count"], job["parallel_trial_count"]) == (8, 2)
    spec = job["trial_job_spec"]
    assert (
        spec["base_output_directory"]["output_uri_prefix"]
        == "gs://bucket/run/training/trials/digits-1"
    )
    (pool,) = spec["worker_pool_specs"]
    assert pool["container_spec"]["args"] == ["--dataset=d"]
    assert spec["scheduling"]["timeout"] == "3600s"


@pytest.mark.parametrize(
    ("strategy", "waits"), [("STANDARD", False), ("SPOT", False), ("FLEX_START", True)]
)
def test_only_flex_start_waits_for_machines(strategy, waits):
    job = types.HyperparameterTuningJob(plan(scheduling_strategy=strategy))
    scheduling = job.trial_job_spec.scheduling
    assert scheduling.strategy.name == strategy
    assert ("max_wait_duration" in scheduling) == waits


@pytest.mark.parametrize("early_stopping", ["none", "median", "decay_curve"])
def test_launcher_sends_the_whole_job(early_stopping):
    job = plan(early_stopping)
    spec = types.HyperparameterTuningJob(job).study_spec
    assert ("median_automated_stopping_spec" in spec) == (early_stopping == "median")
    assert ("decay_curve_stopping_spec" in spec) == (early_stopping == "decay_curve")
    # Google's launcher sends this.
    sent = types.HyperparameterTuningJob(json_util.recursive_remove_empty(job))
    assert sent == types.HyperparameterTuningJob(job)


def test_max_cost_becomes_the_number_of_trials(capsys):
    job = plan(max_cost=3)
    # As many as there are trials may fail.
    assert (job["max_trial_count"], job["max_failed_trial_count"]) == (5, 5)
    with pytest.raises(SystemExit):
        plan(max_cost=0.6)
    assert "max_cost=0.6 does not cover a trial" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--search trial=3", "unknown parameter 'trial'; did you mean 'trials'?"),
        ("--search trials", "--search 'trials' is not NAME=VALUE"),
        ("--trials 0", "search: trials=0 is out of range: it must be at least 2"),
        ("--detach", "--detach and settings of Vertex AI exclude --local"),
        ("--set epochs=0", "epochs=0 is out of range"),
    ],
)
def test_wrong_options_of_tune_start_nothing(arguments, message, tmp_path, capsys):
    words = ["tune", "digits", "--local", f"--runs-directory={tmp_path}", *arguments.split()]
    assert command_line.run(command_line.app, words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_plan_has_the_price_of_a_search_and_what_early_stopping_saves(capsys):
    def describe(**changes):
        recipe = recipes.load("digits").as_search(changes, {})
        planning.show(recipe, recipe.parameters, 10, ())
        (line,) = re.findall("^search .*", capsys.readouterr().out, re.MULTILINE)
        return line

    line = describe(trials=12)
    assert line.startswith("search    12 of 12 trials, 2 in parallel, and a training with")
    (expected,) = re.findall(r"expected ([\d.]+) in 1 h$", line)
    stopped = describe(trials=12, early_stopping="median")
    (best,) = re.findall(rf"expected {expected} in 1 h without early.*, at least ([\d.]+)", stopped)
    # Twelve epochs: 3 whole trainings of 13, and 10 of an epoch.
    assert float(best) == pytest.approx(float(expected) * (3 + 10 / 12) / 13, abs=0.01)


def test_curve_is_drawn_from_the_last_measurements():
    assert draw_curve([0.5]) == ""
    assert draw_curve([9.0] * 20 + [0.7, 0.0]) == "██████████▂▁"


def test_trial_has_a_row():
    measured = [{"metrics": [{"metricId": "loss", "value": value}]} for value in (0.5, 0.4)]
    values = [{"parameterId": "learning_rate", "value": 0.012345}]
    trial = {"id": "7", "state": "ACTIVE", "parameters": values, "measurements": measured}
    (trial,) = read_trials({"trials": [trial]})
    row = make_trial_row(trial)
    assert row[:2] == ("trial 7", "RUNNING")
    assert row.text == "loss 0.4000, learning_rate=0.01235  █▁"


def test_searching_recipe_keeps_its_name():
    recipe = recipes.load("digits-search")
    assert recipe.as_search({"trials": 3}, {}).name == "digits-search"


def test_trials_are_read_with_their_newest_measurement():
    measured = [{"metrics": [{"metricId": "validation_loss", "value": one}]} for one in (0.5, 0.4)]
    values = [{"parameterId": "batch_size", "value": 64}]
    running = {"id": "1", "state": "ACTIVE", "parameters": values, "measurements": measured}
    done = {"id": "2", "state": "SUCCEEDED", "finalMeasurement": measured[0]}
    failed = {"id": "3", "state": "INFEASIBLE", "infeasibleReason": "its CustomJob is FAILED"}
    job = {"trials": [running, done, failed]}
    job["trialJobSpec"] = {"baseOutputDirectory": {"outputUriPrefix": "gs://bucket/trials"}}
    first, second, third = read_trials(job)
    assert (first.values, first.metrics) == ({"batch_size": 64}, {"validation_loss": 0.4})
    assert second.metrics == {"validation_loss": 0.5}
    assert second.directory == "gs://bucket/trials/2"
    assert third.error == "its CustomJob is FAILED"
    assert [trial.rank for trial in (first, second, third)] == [1, 2, 0]
    job["studySpec"] = {"metrics": [{"goal": "MAXIMIZE"}]}
    assert [trial.rank for trial in read_trials(job)] == [2, 1, 0]
    assert read_trials({}) == ()
