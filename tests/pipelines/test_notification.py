"""A run of a recipe that names addresses ends with an e-mail, which a local run leaves out."""

import yaml

from pipelines import compilation, recipe
from pipelines.local import execution

TEXT = 'source = "images:{}"\nnotify = ["one@example.com", "two@example.com"]\nimage_size = 8\n'
MAIL = "vertex-pipelines-notification-email"


def test_every_step_is_within_what_the_e_mail_reports(tmp_path):
    (tmp_path / "mine.toml").write_text(TEXT.format("photos"))
    loaded = recipe.load("mine", tmp_path)
    tasks = yaml.safe_load(compilation.compiled(loaded, "image:1"))["root"]["dag"]["tasks"]
    assert set(tasks) == {"exit-handler-1", MAIL}
    inputs = tasks[MAIL]["inputs"]["parameters"]
    assert inputs["recipients"]["runtimeValue"]["constant"] == [
        "one@example.com",
        "two@example.com",
    ]
    assert inputs["pipeline_task_final_status"]["taskFinalStatus"] == {
        "producerTask": "exit-handler-1"
    }


def test_a_run_here_that_fails_sends_nothing_and_stays_failed(tmp_path):
    empty = tmp_path / "photos"
    empty.mkdir()
    (tmp_path / "mine.toml").write_text(TEXT.format(empty))
    loaded = recipe.load("mine", tmp_path)
    package = compilation.write(loaded, tmp_path / "build")
    run = execution.run(package, recipe="mine", parameters={}, runs_directory=tmp_path / "runs")
    states = {task["name"]: task["state"] for task in run.summary["tasks"]}
    assert run.state == "FAILED"
    assert states["fingerprint-source"] == "FAILED" and states[MAIL] == "SUCCEEDED"
    assert "List the source" in run.summary["error"]
    assert "Nothing is sent" in (run.directory / "logs" / f"{MAIL}.log").read_text()
