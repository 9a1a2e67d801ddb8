"""The rules of Vertex AI's documentation that this project can break, from rules.toml.

python -m tests.pipelines.emulator.rules > docs/vertex-rules.md
"""

from pathlib import Path
from types import SimpleNamespace

from trainer.toml_reader import tomllib

PATH = Path(__file__).with_suffix(".toml")
PAGES = "https://docs.cloud.google.com/gemini-enterprise-agent-platform/"
_HEAD = """\
# Vertex AI's rules that this project follows

Generated from [rules.toml](../tests/pipelines/emulator/rules.toml) by
`python -m tests.pipelines.emulator.rules`. Each rule comes from a page of Google's documentation of
August 2026, which calls Vertex AI *Gemini Enterprise Agent Platform*. The functions listed enforce
it (those in `vertex_emulator` refuse what Vertex AI refuses), and the tests listed verify that.
Questions that no page answers are in [first-hour.md](first-hour.md).
"""
_COLUMNS = "| rule | page | enforced by | test |\n|---|---|---|---|\n"


def load_rules() -> list[SimpleNamespace]:
    """Return all rules with their topic; rules.toml describes the other fields."""
    return [
        SimpleNamespace(topic=topic.replace("_", " ").capitalize(), **line)
        for topic, lines in tomllib.loads(PATH.read_text(encoding="utf-8")).items()
        for line in lines
    ]


def as_markdown() -> str:
    """Return the content of docs/vertex-rules.md."""
    lines, topic = [_HEAD], ""
    for rule in load_rules():
        if rule.topic != topic:
            topic = rule.topic
            lines.append(f"\n## {topic}\n\n{_COLUMNS}")
        name = rule.page.removeprefix("reference/rest/").removeprefix("machine-learning/")
        page = f"[{name.replace('v1/projects.locations.', '')}]({PAGES}{rule.page})"
        enforced = "<br>".join(f"`{name}`" for name in rule.enforced)
        tests = "<br>".join(
            f"[{name.removeprefix('test_')}](../{path})"
            for path, _, name in (test.partition("::") for test in rule.tests)
        )
        lines.append(f"| {rule.rule} | {page} | {enforced} | {tests} |\n")
    return "".join(lines)


if __name__ == "__main__":
    print(as_markdown(), end="")
