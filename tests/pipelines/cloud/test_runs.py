"""Runs on Vertex AI as they are shown, listed and cancelled; their logs and costs."""

import datetime

from google.cloud.aiplatform_v1 import types

from pipelines.runs import vertex_jobs
from pipelines.runs.run import job_names
from tests.pipelines.cloud.scripted_vertex import LABELS, LOCATION, Outcome, now

NOISE = "I0000 00:00:1795478778.113932   22747 port.cc:153] oneDNN custom operations are on."


def log_entry(replica, job="1001", **payload):
    labels = {"job_id": job, "task_name": replica}
    return {"resource": {"type": "ml_job", "labels": labels}, **payload}


def test_run_shows_its_steps_cost_and_verdict(vertex, succeed):
    decision = {"verdict": "skipped", "reason": "nothing changed since digits@3"}
    vertex.outcomes = [Outcome(hours=2.0, decision=decision)]
    out = succeed("run digits --name one --set skip_if_unchanged=true")
    (request,) = vertex.sent_json("CreatePipelineJob")
    values = request["pipelineJob"]["runtimeConfig"]["parameterValues"]
    assert values["skip_if_unchanged"] is True
    assert "Create TFRecords SUCCEEDED" in out
    assert "Train SUCCEEDED" in out and "custom-training-job" not in out
    # Two hours of (0.21849885 + 100 * 0.000267808).
    assert "SUCCEEDED  about 0.49 USD for training" in out
    status = succeed("status one")
    assert status.count("0.49 USD") == 1
    for shown in (out, status):
        assert "verdict   skipped: nothing changed since digits@3\n" in shown
    assert "about 2.05 USD for" in succeed("status one --rate n1-standard-4=1")


def test_cost_follows_the_parameter_price_per_hour(vertex, succeed):
    vertex.outcomes = [Outcome(hours=2.0)]
    line = "about 20.00 USD for training, from the parameter price_per_hour\n"
    assert line in succeed("run digits --name one --set price_per_hour=10")
    assert line in succeed("status one")
    assert "about 2.05 USD for" in succeed("status one --rate n1-standard-4=1")


def test_cached_steps_differ_from_untriggered_ones(vertex, succeed):
    succeed("run digits --name one")
    records, training, _ = vertex.pipeline_jobs["one"].job_detail.task_details
    records.outputs.clear()
    records.state, training.state = "SKIPPED", "NOT_TRIGGERED"
    shown = succeed("status one")
    assert "CACHED         Create TFRecords" in shown
    assert "SKIPPED        Train" in shown


def test_jobs_of_other_runs_are_not_counted(vertex, succeed):
    succeed("run digits --name one")
    assert "USD for training" in succeed("status one")
    training = vertex.pipeline_jobs["one"].job_detail.task_details[1]
    training.state = "SKIPPED"  # Its metadata still names the job of the run that it reuses.
    (custom_job,) = vertex.custom_jobs.values()
    custom_job.labels.pop("made-by")  # Somebody else's job, with a label of the same name.
    assert "USD for training" not in succeed("status one")


def test_training_job_left_by_a_run_is_cancelled(vertex, command, refused, succeed):
    vertex.outcomes = [Outcome("FAILED")]
    command("run digits --name one")
    (custom_job,) = vertex.custom_jobs.values()
    custom_job.state = types.JobState.JOB_STATE_RUNNING
    assert succeed("cancel one") == "one is being cancelled\n"
    assert custom_job.state.name == "JOB_STATE_CANCELLED"
    assert refused("cancel one") == "error: the run 'one' has already ended: FAILED\n"


def test_failed_run_shows_the_lines_of_the_failing_replica(vertex, command, succeed):
    vertex.log_entries = [
        log_entry("workerpool0-0", jsonPayload={"message": "the chief waits"}),
        log_entry("workerpool1-0", jsonPayload={"message": "ValueError: bad shard"}),
        *(log_entry("workerpool1-0", textPayload=line) for line in [NOISE] * 60),
    ]
    failure = "The replica workerpool1-0 exited with a non-zero status of 1."
    vertex.outcomes = [Outcome("FAILED", failure)]
    code, out, err = command("run digits --name one")
    assert (code, err) == (1, f"error: {failure}\n")
    assert "  ValueError: bad shard" in out
    assert "the chief waits" not in out
    assert succeed("logs one") == f"error: {failure}\nValueError: bad shard\n"
    assert succeed("logs one --replica all --lines 62").splitlines() == [
        "workerpool0-0: the chief waits",
        "workerpool1-0: ValueError: bad shard",
        *[f"workerpool1-0: {NOISE}"] * 60,
    ]
    assert vertex.sent("ListLogEntries")[0]["resourceNames"] == ["projects/my-project"]


def test_logs_search_on_after_empty_pages(vertex, succeed):
    succeed("run digits --name one")
    (number,) = vertex.custom_jobs
    vertex.log_entries = [
        log_entry("workerpool0-0", number, jsonPayload={"message": {"step": 3}}),
        log_entry("workerpool0-0", number, textPayload="done"),
    ]
    vertex.empty_log_pages = 3
    out = succeed("logs one")
    assert out.splitlines() == ['workerpool0-0: {"step": 3}', "workerpool0-0: done"]
    first, *_, last = vertex.sent("ListLogEntries")
    assert last["filter"] == first["filter"]
    # The search is limited to the time of the run.
    bounds = dict(term.split("=", 1) for term in first["filter"].split(" AND ") if "time" in term)
    begin, end = (
        datetime.datetime.fromisoformat(bounds[f"timestamp{sign}"].strip('"')) for sign in "><"
    )
    job = vertex.pipeline_jobs["one"]
    assert begin <= job.create_time <= job.end_time <= end
    assert end - begin < datetime.timedelta(hours=3)


def test_link_to_the_log_is_a_url(vertex, succeed):
    succeed("run digits --name one")
    (number,) = vertex.custom_jobs
    link = succeed("logs one").partition("no log lines yet: ")[2]
    assert f"query;query=resource.labels.job_id%3D%22{number}%22?project=my-project" in link


def test_job_that_no_container_launched_is_in_the_details_of_its_task(vertex, succeed):
    succeed("run digits --name one")
    (custom_job,) = vertex.custom_jobs.values()
    task = vertex.pipeline_jobs["one"].job_detail.task_details[1]
    task.execution.metadata = {}
    failed = f"{custom_job.name}0"
    task.executor_detail.custom_job_detail = {"job": custom_job.name, "failed_jobs": [failed]}
    job = vertex_jobs.content_of(vertex.pipeline_jobs["one"])
    assert job_names(job) == [failed, custom_job.name]
    # The failed job, which no longer exists, is left out.
    assert "USD for training" in succeed("status one")
    assert not vertex.sent("ListCustomJobs")


def test_run_with_an_expired_training_job_fails(vertex, command, succeed):
    def expire():
        (job,) = vertex.custom_jobs.values()
        job.state = "JOB_STATE_EXPIRED"

    vertex.outcomes = [Outcome("RUNNING")]
    vertex.before("GetCustomJob", expire)
    remedy = (
        "the training job has expired; if the step Train still waits for it, cancel the run: "
        "python -m pipelines cancel one"
    )
    code, _, err = command("run digits --name one")
    assert (code, err) == (1, f"error: {remedy}\n")
    assert remedy in succeed("status one")
    assert succeed("runs").startswith("one  EXPIRED")
    succeed("cancel one")
    assert remedy not in succeed("status one")


def test_runs_are_listed_shown_and_cancelled(vertex, refused, succeed):
    vertex.outcomes = [Outcome(polls=99)] * 3
    names = ["one", "two", "three"]
    for name in names:
        succeed(f"run digits --name {name} --detach")
    *listing, _ = succeed("status").splitlines()
    shown = [line.split()[:2] for line in listing[::2]]
    assert shown == [[name, "RUNNING"] for name in reversed(names)]
    assert all("digits on Vertex AI, 20" in line for line in listing[1::2])
    assert "/vertex-ai/experiments/locations/us-central1/" not in succeed("runs")
    assert "/experiments/digits/runs?" in succeed("runs --recipe digits")
    succeed("cancel two")
    assert succeed("status two").startswith("two  CANCELLED")
    assert refused("cancel two") == "error: the run 'two' has already ended: CANCELLED\n"
    assert refused("cancel four").startswith("error: no run 'four' in my-project, us-central1;")


def test_status_lists_the_latest_runs_without_their_specs(vertex, command):
    for number in range(60):
        vertex.pipeline_jobs[f"run-{number}"] = types.PipelineJob(
            name=f"{LOCATION}/pipelineJobs/run-{number}",
            labels=LABELS,
            create_time=now() - datetime.timedelta(hours=number),
            state=types.PipelineState.PIPELINE_STATE_SUCCEEDED,
            runtime_config={"gcs_output_directory": "gs://bucket/runs"},
        )
    # One of the pages is requested again, not all of them.
    vertex.fail("ListPipelineJobs", 503, "UNAVAILABLE")
    code, out, err = command("status")
    assert (code, err.count("no answer: 503")) == (0, 1)
    shown = [line.split()[0] for line in out.splitlines() if line.startswith("run-")]
    assert shown == [f"run-{number}" for number in range(20)]
    assert "older runs are not listed" in out
    first = next(
        request for request in vertex.sent("ListPipelineJobs") if hasattr(request, "page_size")
    )
    assert first.page_size == 21
    assert "pipeline_spec" not in first.read_mask.paths
    assert "state" in first.read_mask.paths


def test_clock_ahead_of_ours_gives_no_negative_cost(vertex, succeed):
    vertex.outcomes = [Outcome("RUNNING")]
    succeed("run digits --name one --detach")
    vertex.finish("one", Outcome("RUNNING"))
    ahead = now() + datetime.timedelta(hours=2)
    job, (custom_job,) = vertex.pipeline_jobs["one"], vertex.custom_jobs.values()
    for detail in (*job.job_detail.task_details, custom_job):
        detail.start_time, detail.end_time = ahead, None
    out = succeed("status one")
    assert "about 0.00 USD for training" in out
    (task,) = (line.split() for line in out.splitlines() if " Train" in line)
    assert task == ["task", "RUNNING", "Train"]
