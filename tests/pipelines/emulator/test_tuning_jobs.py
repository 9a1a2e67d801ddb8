"""HyperparameterTuningJobs of the emulator run their trials as CustomJobs."""

import contextlib
import json
import subprocess
import sys

import psutil
import pytest
import yaml
from google.cloud.aiplatform_v1 import JobServiceClient
from google.cloud.aiplatform_v1.types import (
    HyperparameterTuningJob,
    Measurement,
    StudySpec,
    Trial,
)
from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp
from kfp import dsl

from pipelines import training_pipeline
from tests.child_processes import ROOT, started
from tests.pipelines.emulator import search_services
from tests.pipelines.emulator.conftest import emulated
from tests.pipelines.emulator.idle_services import PARENT, POOL, changed
from tests.pipelines.emulator.search_services import create, pool_of, request_of, started_services
from tests.pipelines.emulator.test_refused_tuning_jobs import (
    categorical,
    discrete,
    double,
    integer,
    under,
    when,
)
from tests.pipelines.local.conftest import wait_for
from tests.pipelines.local.package_runs import compile_to, resume, run_package
from vertex.client.vertex_client import connect_service, local_credentials
from vertex.emulator import job_state
from vertex.emulator.server import Emulator
from vertex.emulator.tuning_measurements import add_report, choose_final, should_stop
from vertex.emulator.tuning_search import ask
from vertex.facts.jobs import ENDED

FINISHED = {Trial.State.SUCCEEDED, Trial.State.INFEASIBLE}


def starts(folder):
    return (folder / "starts").read_text().split()


def read(folder):
    """Return the job of a folder as another process reads it."""
    return HyperparameterTuningJob.from_json(
        json.dumps(job_state.read_message(folder / job_state.TUNING_FILE_NAME))
    )


@pytest.fixture
def clients(tmp_path):
    """Clients, by REST and by gRPC, of two emulators that share a folder."""
    with contextlib.ExitStack() as stack:
        connected = []
        for transport in ("rest", "grpc"):
            tuning = stack.enter_context(started_services(tmp_path))
            server = stack.enter_context(Emulator(tuning.trials, tuning, tuning.operations))
            options = {"credentials": local_credentials(server.environment), "transport": transport}
            connected.append(connect_service(JobServiceClient, server.endpoint, **options))
        yield connected


@pytest.fixture
def tune(clients):
    """Create a job; return it when it has ended."""

    def tune(request):
        job = clients[1].create_hyperparameter_tuning_job(
            parent=PARENT, hyperparameter_tuning_job=request
        )
        return wait_for_end(clients[1], job.name)

    return tune


def wait_for_end(client, name):
    def ended():
        job = client.get_hyperparameter_tuning_job(name=name)
        return job.state.name.removeprefix("JOB_STATE_") in ENDED and job

    return wait_for(ended, 30)


def test_search_runs_every_trial_and_any_process_sees_it(clients, tmp_path):
    rest, grpc = clients
    parameters = [double(0.25, 1), integer(2, 4), discrete(16, 32.5)]
    pools = [pool_of(tmp_path), {}, pool_of(tmp_path)]
    request = request_of(
        tmp_path, study_spec__parameters=parameters, trial_job_spec__worker_pool_specs=pools
    )
    name = rest.create_hyperparameter_tuning_job(
        parent=PARENT, hyperparameter_tuning_job=request
    ).name
    job = wait_for_end(rest, name)
    assert (job.state.name, job.error.message) == ("JOB_STATE_SUCCEEDED", "")
    assert job.create_time <= job.start_time <= job.end_time
    assert grpc.get_hyperparameter_tuning_job(name=name) == job
    (listed,) = grpc.list_hyperparameter_tuning_jobs(parent=PARENT)
    assert (listed.name, len(listed.trials)) == (name, 0)
    assert [trial.id for trial in job.trials] == ["1", "2", "3", "4", "5"]
    assert {trial.state.name for trial in job.trials} == {"SUCCEEDED"}
    assert len({trial.client_id for trial in job.trials}) == 5
    for trial in job.trials:
        values = {parameter.parameter_id: parameter.value for parameter in trial.parameters}
        (metric,) = trial.final_measurement.metrics
        assert (metric.metric_id, metric.value) == ("accuracy", values["rate"])
        assert [measurement.step_count for measurement in trial.measurements] == [1, 2, 3]
        assert trial.start_time <= trial.end_time
        seen = json.loads((tmp_path / f"{trial.id}.json").read_text())
        assert seen["given"]["--layers"] == f"{values['layers']:.0f}"
        assert seen["given"]["--batch"] == {16: "16", 32.5: "32.5"}[values["batch"]]
        assert float(seen["given"]["--rate"]) == values["rate"]
        variables = seen["variables"]
        assert variables["AIP_MODEL_DIR"] == f"{tmp_path}/out/{trial.id}/model/"
        for cluster in ("CLUSTER_SPEC", "TF_CONFIG"):
            assert json.loads(variables[cluster])["task"]["trial"] == trial.id
        custom_job = grpc.get_custom_job(name=trial.custom_job)
        assert custom_job.state.name == "JOB_STATE_SUCCEEDED"
        assert custom_job.display_name == f"tune-trial-{trial.id}"
    # At most two at once.
    for trial in job.trials:
        others = [one for one in job.trials if one.start_time <= trial.start_time < one.end_time]
        assert len(others) <= 2


def test_key_of_a_tuning_job_is_that_of_its_trials(tune, clients, tmp_path):
    ring = f"{PARENT.replace('/123456/', '/p/')}/keyRings/r/cryptoKeys/k"
    key = {"kms_key_name": ring}
    job = tune(request_of(tmp_path, encryption_spec=key, max_trial_count=1))
    custom_job = clients[0].get_custom_job(name=job.trials[0].custom_job)
    assert custom_job.encryption_spec == job.encryption_spec


def test_failed_and_mute_trials_are_infeasible(tune, tmp_path):
    request = request_of(tmp_path, "fail:2", "mute:3", max_failed_trial_count=3)
    job = tune(request)
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    second, third = job.trials[1:3]
    assert second.state == third.state == Trial.State.INFEASIBLE
    assert "status of 3" in second.infeasible_reason
    assert third.infeasible_reason == "it has reported no value of accuracy"
    assert not third.final_measurement.metrics


@pytest.mark.parametrize(
    ("failing", "limit", "last"), [("fail:2,3,4", 2, "3"), ("fail:1", 0, "1"), ("fail:2,3", 0, "3")]
)
def test_too_many_failed_trials_fail_the_job(tune, tmp_path, failing, limit, last):
    request = request_of(tmp_path, failing, max_failed_trial_count=limit, parallel_trial_count=1)
    job = tune(request)
    assert job.state.name == "JOB_STATE_FAILED"
    assert f"the last of them {last}: its CustomJob is FAILED" in job.error.message
    assert starts(tmp_path)[-1] == last


def test_cancelled_job_cancels_its_trials(clients, tmp_path):
    rest, grpc = clients
    request = request_of(tmp_path, "hang:1,2")
    name = rest.create_hyperparameter_tuning_job(
        parent=PARENT, hyperparameter_tuning_job=request
    ).name
    wait_for(lambda: len([*tmp_path.glob("jobs/*/trial-*/*.metrics")]) == 2)
    grpc.cancel_hyperparameter_tuning_job(name=name)
    job = wait_for_end(rest, name)
    assert (job.state.name, job.error.code) == ("JOB_STATE_CANCELLED", 1)
    assert [trial.state.name for trial in job.trials] == ["STOPPING", "STOPPING"]
    states = [rest.get_custom_job(name=trial.custom_job).state.name for trial in job.trials]
    assert states == ["JOB_STATE_CANCELLED"] * 2
    grpc.delete_hyperparameter_tuning_job(name=name).result()
    assert not [*rest.list_hyperparameter_tuning_jobs(parent=PARENT)]


def test_trial_below_the_median_is_stopped(tune, tmp_path):
    rates = {"parameter_id": "rate", "discrete_value_spec": {"values": [1, 3]}}
    request = request_of(
        tmp_path,
        "hang:2",
        parallel_trial_count=1,
        study_spec__metrics=[{"metric_id": "accuracy", "goal": "MINIMIZE"}],
        study_spec__parameters=[rates],
        study_spec__algorithm="GRID_SEARCH",
        study_spec__median_automated_stopping_spec={},
    )
    job = tune(request)
    # A grid of two points ends the search before max_trial_count, 5.
    assert [trial.state.name for trial in job.trials] == ["SUCCEEDED"] * 2
    assert [len(trial.measurements) for trial in job.trials] == [3, 1]
    assert job.trials[1].final_measurement.metrics[0].value == 3
    assert job.state.name == "JOB_STATE_SUCCEEDED"


@pytest.mark.slow
def test_killed_job_has_failed_and_the_next_takes_over_its_trials(tmp_path):
    place = tmp_path / "logs" / "search"
    command = [sys.executable, "-m", search_services.__name__, str(tmp_path)]
    with started(command, cwd=ROOT, stdin=subprocess.PIPE) as process:
        wait_for(lambda: len([*place.glob("trial-*/*.metrics")]) == 3, 30)
        wait_for(lambda: len(read(place).trials[2].measurements) == 1)
        replicas = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
    assert not psutil.wait_procs(replicas, 30)[1]
    with started_services(tmp_path) as tuning:
        tuning.run_logs["1"] = tmp_path / "logs"
        killed = tuning.read(place)
        assert (killed.state.name, killed.error.code) == ("JOB_STATE_FAILED", 13)
        assert killed.error.message == "the job's process was killed"
        (tmp_path / "go").touch()
        name = create(tuning, tmp_path).name
        wait_for(lambda: read(place).state.name == "JOB_STATE_SUCCEEDED", 30)
        job = tuning.find(name)
    assert sorted(starts(tmp_path)) == ["1", "2", "2", "3", "3", "4", "5"]
    for before, after in zip(killed.trials, job.trials, strict=False):
        assert before.parameters == after.parameters
        assert before == after or before.state not in FINISHED
    assert killed.trials[0] == job.trials[0]
    assert [len(trial.measurements) for trial in job.trials] == [3] * 5


@pytest.fixture(scope="module")
def googles_search():
    """Google's component of a search, whose import takes two seconds."""
    from google_cloud_pipeline_components.v1 import hyperparameter_tuning_job

    return hyperparameter_tuning_job.HyperparameterTuningJobRunOp


@pytest.fixture(scope="module")
def tuned(googles_search, tmp_path_factory):
    """A compiled pipeline of a training job and a search, each with a launcher of its own."""

    @dsl.pipeline(name="tuned")
    def pipeline(pools: list, folder: str, parameters: list, metrics: list):
        pool = changed(POOL, container_spec__command=["true"])
        train = CustomTrainingJobOp(display_name="train", worker_pool_specs=[pool])
        search = googles_search(
            display_name="search",
            base_output_directory=folder,
            worker_pool_specs=pools,
            study_spec_metrics=metrics,
            study_spec_parameters=parameters,
            max_trial_count=3,
            parallel_trial_count=1,
        )
        search.after(train)

    return compile_to(tmp_path_factory.mktemp("build"), pipeline)


def test_our_search_has_the_launcher_of_googles(googles_search):
    ours, theirs = (
        one.component_spec.implementation.container
        for one in (training_pipeline.search, googles_search)
    )
    assert (ours.image, ours.command) == (theirs.image, theirs.command)


def parameters_of(folder, *actions):
    """Return the parameters of a run of `tuned`."""
    spec = StudySpec.ParameterSpec(double(0.25, 1))
    metric = StudySpec.MetricSpec(metric_id="accuracy", goal="MAXIMIZE")
    return {
        "pools": [pool_of(folder, *actions)],
        "folder": str(folder / "out"),
        "metrics": [StudySpec.MetricSpec.to_dict(metric)],
        "parameters": [StudySpec.ParameterSpec.to_dict(spec)],
    }


def test_resumed_run_continues_the_search_of_its_launcher(tuned, tmp_path):
    parameters = parameters_of(tmp_path, "fail:1")
    ended, shown = run_package(tuned, tmp_path / "runs", parameters)
    assert ended.state == "FAILED"
    assert starts(tmp_path) == ["1"]
    assert "status of 3" in shown
    assert resume(ended.directory).state == "SUCCEEDED"
    assert starts(tmp_path) == ["1", "2", "3"]
    job = read(ended.directory / "logs" / "hyperparameter-tuning-job")
    assert [trial.state.name for trial in job.trials] == ["INFEASIBLE", "SUCCEEDED", "SUCCEEDED"]


@pytest.mark.slow
def test_cancelled_run_cancels_its_search_and_trials(tuned, tmp_path):
    spec = yaml.safe_load(tuned.read_text())
    values = {**parameters_of(tmp_path, "hang:1"), "folder": "gs://my-project/out"}
    config = {"gcsOutputDirectory": "gs://my-project/runs", "parameterValues": values}
    run = {"displayName": "tuned", "pipelineSpec": spec, "runtimeConfig": config}
    with emulated(tmp_path) as rehearsal:
        path = rehearsal.ask("POST", "pipelineJobs?pipelineJobId=tuned", run)["name"]
        wait_for(lambda: (tmp_path / "starts").exists(), 60)
        _, answer = rehearsal.send("POST", f"/v1/{path}:cancel", {})
        assert answer == {}
        wait_for(lambda: rehearsal.runs() == {"tuned": "CANCELLED"}, 60)
        for kind in ("hyperparameterTuningJobs", "customJobs"):
            jobs = [
                job for job in rehearsal.ask("GET", kind)[kind] if job["displayName"] != "train"
            ]
            assert [job["state"] for job in jobs] == ["JOB_STATE_CANCELLED"]


def study(*parameters, **fields):
    metrics = [{"metric_id": "accuracy", "goal": "MAXIMIZE"}]
    return StudySpec({"metrics": metrics, "parameters": parameters, **fields})


def trial_of(values, **fields):
    listed = [{"parameter_id": name, "value": value} for name, value in values.items()]
    return Trial({"parameters": listed, "state": "ACTIVE", **fields})


def measured(*values):
    """Return a completed trial with a value for each step."""
    measurements = [
        {"step_count": step, "metrics": [{"metric_id": "accuracy", "value": value}]}
        for step, value in enumerate(values, 1)
    ]
    final = measurements[-1]
    return {"state": "SUCCEEDED", "measurements": measurements, "final_measurement": final}


CONDITIONAL = [
    under(
        categorical("linear", "deep"),
        when(["linear"], parameter=double(1e-4, 1, scale_type="UNIT_LOG_SCALE")),
        when(["deep"], parameter=double(5, 6, scale_type="UNIT_REVERSE_LOG_SCALE")),
        when(["deep"], parameter=integer(1, 3, scale_type="UNIT_LOG_SCALE")),
    ),
    discrete(16, 32, 64, scale_type="UNIT_LOG_SCALE"),
]


@pytest.mark.parametrize("algorithm", ["ALGORITHM_UNSPECIFIED", "RANDOM_SEARCH"])
def test_search_is_repeatable_within_bounds_and_conditions(algorithm):
    spec = study(*CONDITIONAL, algorithm=algorithm)
    trials = []
    for number in range(25):
        values = ask(spec, trials, "tune")
        assert values == ask(spec, trials, "tune")
        deep = values["kind"] == "deep"
        assert set(values) == {"kind", "rate", "batch", *(["layers"] if deep else [])}
        low, high = (5, 6) if deep else (1e-4, 1)
        assert low <= values["rate"] <= high
        assert values["batch"] in (16, 32, 64)
        result = {"state": "INFEASIBLE"} if number % 5 == 0 else measured(-values["batch"])
        trials.append(trial_of(values, **(result if number < 23 else {})))
    assert len({trial.parameters[1].value for trial in trials}) == 25
    assert {trial.parameters[0].value for trial in trials} == {"linear", "deep"}


def test_search_comes_closer_to_the_best_value_than_random_ones():
    far = {}
    for algorithm in ("ALGORITHM_UNSPECIFIED", "RANDOM_SEARCH"):
        spec, far[algorithm] = study(double(0, 1), algorithm=algorithm), 0.0
        for seed in range(8):
            trials = []
            for _ in range(16):
                values = ask(spec, trials, f"tune-{seed}")
                trials.append(trial_of(values, **measured(-abs(values["rate"] - 0.3))))
            far[algorithm] += min(abs(one.parameters[0].value - 0.3) for one in trials)
    assert far["ALGORITHM_UNSPECIFIED"] < far["RANDOM_SEARCH"]


@pytest.mark.parametrize(("scale", "is_low"), [("LOG", True), ("REVERSE_LOG", False)])
def test_scale_spreads_values(scale, is_low):
    parameter = double(1, 1000, scale_type=f"UNIT_{scale}_SCALE")
    spec = study(parameter, algorithm="RANDOM_SEARCH")
    values = [ask(spec, [], str(seed))["rate"] for seed in range(40)]
    assert (sorted(values)[20] < 250) == is_low


def test_grid_has_each_point_once():
    parameters = [
        under(categorical("a", "b"), when(["b"], parameter=integer(0, 1))),
        discrete(0.5, 2),
    ]
    spec = study(*parameters, algorithm="GRID_SEARCH")
    points = []
    while values := ask(spec, points, "tune"):
        points.append(values)
    assert len(points) == 2 + 4
    assert {"kind": "a", "batch": 0.5} in points
    assert {"kind": "b", "layers": 1.0, "batch": 2.0} in points


def test_median_is_that_of_means_up_to_the_step():
    spec = study(double(0, 1), median_automated_stopping_spec={})
    completed = [trial_of({}, **measured(0.2, 0.4, 9)), trial_of({}, **measured(0.5, 0.7, 9))]
    for value, stops in ((0.45, False), (0.44, True)):
        running = trial_of({}, **{**measured(0.1, value), "state": "ACTIVE"})
        assert should_stop(spec, running, [*completed, running]) == stops
        assert not should_stop(study(double(0, 1)), running, completed)
        assert not should_stop(spec, running, [running])


def curve_of(final, steps, state):
    """Return a trial whose metric decays from 1 to `final`."""
    values = [final + (1 - final) * 0.5**step for step in range(1, steps + 1)]
    return trial_of({}, **{**measured(*values), "state": state})


def test_decay_curve_predicts_the_final_value():
    metric = {"metric_id": "accuracy", "goal": "MINIMIZE"}
    spec = study(double(0, 1), metrics=[metric], decay_curve_stopping_spec={})
    completed = [curve_of(final, 10, "SUCCEEDED") for final in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
    for final, steps, stops in ((0.05, 3, False), (0.09, 1, False), (0.4, 3, True), (0.7, 4, True)):
        running = curve_of(final, steps, "ACTIVE")
        assert should_stop(spec, running, [*completed, running]) == stops
        assert not should_stop(spec, running, completed[:4])


def test_reports_become_ordered_measurements():
    spec = study(double(0, 1), metrics=[{"metric_id": name} for name in ("accuracy", "loss")])
    trial = Trial(start_time="2026-08-01T00:00:00Z")
    start = trial.start_time.timestamp()
    for step, name, value in (
        ("2", "accuracy", "0.5"),
        ("1", "accuracy", "0.9"),
        ("2", "loss", "7"),
        ("1", "loss", "nan"),
        ("2", "accuracy", "0.6"),  # A replica has started again.
        ("x", "accuracy", "1"),
    ):
        add_report(spec, trial, {"timestamp": start + 5, "global_step": step, name: value})
    assert [measurement.step_count for measurement in trial.measurements] == [1, 2]
    assert {one.metric_id: one.value for one in trial.measurements[1].metrics} == {
        "accuracy": 0.6,
        "loss": 7.0,
    }
    assert trial.measurements[0].elapsed_duration.total_seconds() == 5
    assert choose_final(spec, trial).step_count == 2
    trial.measurements.pop()
    assert choose_final(spec, trial) is None


@pytest.mark.parametrize(
    ("selection", "step"), [(0, 3), ("LAST_MEASUREMENT", 3), ("BEST_MEASUREMENT", 2)]
)
def test_final_measurement_is_the_selected_one(selection, step):
    spec = study(double(0, 1), measurement_selection_type=selection)
    final = choose_final(spec, trial_of({}, **measured(0.1, 0.3, 0.2)))
    assert (type(final), final.step_count) == (Measurement, step)
