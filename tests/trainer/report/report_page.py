"""Write a report of small samples and read it as a browser would."""

import html.parser
import re
from pathlib import Path

from components.evaluate_model import list_defaults
from trainer.report.document import write_report

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)> & $\\frac{1}{2}$"
TRAINING = {
    "epochs": 3,
    "best_epoch": 2,
    "seconds": 75.0,
    "examples_per_second": 5321.4,
    "strategy": "multi_worker_mirrored",
    "stopped": "",
    "stopped_phases": [""],
    "precision": "float32",
    "replicas": 2,
    "model": "small_cnn",
    "parameters": 60554,
    "train": {"loss": 0.02, "accuracy": 0.99},
    "validation": {"loss": 0.5, "accuracy": 0.80},
    "versions": {"tensorflow": "2.21.0"},
    "profile": {
        "first_step": 20,
        "last_step": 30,
        "step_seconds": 0.012,
        "input_seconds": 0.001,
        "all_reduce_seconds": 0.003,
        "compute_seconds": 0.008,
    },
}
# None where there was no validation.
HISTORY = [
    {
        "epoch": epoch,
        "phase": 1.0,
        "loss": 1 / epoch,
        "accuracy": 0.9,
        "validation_loss": None if epoch == 2 else 1.1 / epoch,
        "validation_accuracy": None if epoch == 2 else 0.5,
        "learning_rate": 0.001,
        "examples_per_second": 5000.0,
        "input_wait_fraction": 0.4,
        "seconds": 1.5,
    }
    for epoch in (1.0, 2.0, 3.0)
]


class Page(html.parser.HTMLParser):
    """A report as a browser reads it: its tags, those left open, and its text."""

    def __init__(self, file: Path):
        super().__init__()
        self.source = file.read_text()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(self.source)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "wbr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.tags if name == tag]

    def ids(self) -> list[str]:
        return [attributes["id"] for attributes in self.all("section")]

    def section(self, name: str) -> str:
        """Return the source of a section."""
        return self.source.split(f'id="{name}"')[1].split("</section>")[0]


def report(file: Path, evaluation, dataset, **changes) -> Page:
    content = {
        "training": TRAINING,
        "history": HISTORY,
        "title": "A run",
        "defaults": list_defaults(),
        "details": {"epochs": 3, "xla": False, "model_options": {"units": 64}},
    }
    write_report(str(file), evaluation=evaluation, dataset=dataset, **{**content, **changes})
    return Page(file)
