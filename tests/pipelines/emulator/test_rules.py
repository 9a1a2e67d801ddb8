"""Each rule of docs/vertex-rules.md has a page, a function that enforces it and a test."""

import ast
import functools
import re

from tests.child_processes import ROOT
from tests.pipelines.emulator.rules import as_markdown, load_rules


@functools.cache
def definitions(path):
    """Return the names of a module's functions and classes; of a method, Class.name."""
    functions = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            functions.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = (member for member in node.body if isinstance(member, ast.FunctionDef))
            functions.update(f"{node.name}.{method.name}" for method in members)
    return functions


def is_defined(dotted):
    """Return whether a dotted name is a function or class of one of the packages."""
    parts = dotted.split(".")
    for length in range(len(parts) - 1, 0, -1):
        for root in (ROOT, ROOT / "emulator"):
            path = root.joinpath(*parts[:length]).with_suffix(".py")
            if path.is_file():
                return ".".join(parts[length:]) in definitions(path)
    return False


def is_test(node_id):
    path, _, name = node_id.partition("::")
    known = name.startswith("test_") and (ROOT / path).is_file()
    return known and name in definitions(ROOT / path)


def words(text):
    """Return the words of a page, without its markup."""
    text = re.sub(r"<[^<>\n]*>|\]\([^)]*\)|\\", "", text)
    return f" {' '.join(re.findall(r'[A-Za-z0-9_]+', text))} "


def test_every_rule_has_a_short_quote_a_function_and_a_test():
    missing = [name for rule in load_rules() for name in rule.enforced if not is_defined(name)]
    missing += [test for rule in load_rules() for test in rule.tests if not is_test(test)]
    assert missing == []
    assert all(rule.enforced and rule.tests for rule in load_rules())
    assert [rule.quote for rule in load_rules() if not 2 <= len(rule.quote.split()) <= 15] == []
    sentences = [rule.rule for rule in load_rules()]
    assert len(set(sentences)) == len(sentences) >= 60


def test_page_is_up_to_date():
    assert (ROOT / "docs" / "vertex-rules.md").read_text() == as_markdown()


def test_quotes_are_in_their_pages(vertex_pages):
    missing = []
    for rule in load_rules():
        page = vertex_pages / f"{rule.page}.md"
        if not page.is_file() or words(rule.quote) not in words(page.read_text()):
            missing.append((rule.page, rule.quote))
    assert missing == []
