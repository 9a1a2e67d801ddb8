"""A run sends an e-mail to the addresses of its recipe, but not on this machine."""

import yaml

from pipelines import compilation, recipe
from pipelines.local import execution
from pipelines.package import Package

TEXT = 'source = "images:{}"\nnotify = ["one@example.com", "two@example.com"]\nimage_size = 8\n'
MAIL = "vertex-pipelines-notification-email"


def test_e_mail_reports_on_every_step(tmp_path):
    (tmp_path / "mine.toml").write_text(TEXT.format("photos"))
    loaded = recipe.load("mine", tmp_path)
    tasks = yaml.safe_load(compilation.compile_yaml(loaded, "image:1"))["root"]["dag"]["tasks"]
    assert set(tasks) == {"exit-handler-1", MAIL}
    inputs = tasks[MAIL]["inputs"]["parameters"]
    recipients = inputs["recipients"]["runtimeValue"]["constant"]
    assert recipients == ["one@example.com", "two@example.com"]
    status = inputs["pipeline_task_final_status"]["taskFinalStatus"]
    assert status == {"producerTask": "exit-handler-1"}


def test_failed_local_run_sends_no_e_mail(tmp_path):
    empty = tmp_path / "photos"
    empty.mkdir()
    (tmp_path / "mine.toml").write_text(TEXT.format(empty))
    loaded = recipe.load("mine", tmp_path)
    package = compilation.write_yaml(loaded, tmp_path / "build")
    run = execution.run(Package(package), parameters={}, runs_directory=tmp_path / "runs")
    states = {task["name"]: task["state"] for task in run.summary["tasks"]}
    assert run.state == "FAILED"
    assert states["fingerprint-source"] == "FAILED" and states[MAIL] == "SUCCEEDED"
    assert "List the source" in run.summary["error"]
    assert "Nothing is sent" in (run.directory / "logs" / f"{MAIL}.log").read_text()
