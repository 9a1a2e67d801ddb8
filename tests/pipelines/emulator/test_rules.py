"""Each rule of docs/vertex-rules.md has a page, a function that enforces it and a test."""

import ast
import functools
import re
from typing import NamedTuple

import pytest

from tests.child_processes import ROOT

PAGES = "https://docs.cloud.google.com/gemini-enterprise-agent-platform/"


class Rule(NamedTuple):
    """A row of the page."""

    text: str
    page: str  # below PAGES
    quote: str  # words of the page
    enforced: list[str]  # dotted names of functions
    tests: list[tuple[str, str]]  # file and function


@pytest.fixture(scope="module")
def rules():
    """Return the rules of the page; fail for a row that can't be read."""
    lines = (ROOT / "docs" / "vertex-rules.md").read_text(encoding="utf-8").splitlines()
    head = ["| rule | page | enforced by | test |", "|---|---|---|---|"]
    return [read_rule(line) for line in lines if line.startswith("|") and line not in head]


def read_rule(line):
    text, link, enforced, tests = line.strip("| ").split(" | ")
    page, quote = re.fullmatch(rf'\[.+?\]\({PAGES}(\S+) "(.+)"\)', link).groups()
    linked = re.findall(r"\[(\w+)\]\(\.\./(\S+?)\)", tests)
    names = re.findall("`([^`]+)`", enforced)
    return Rule(text, page, quote, names, [(path, f"test_{name}") for name, path in linked])


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
        path = ROOT.joinpath(*parts[:length]).with_suffix(".py")
        if path.is_file():
            return ".".join(parts[length:]) in definitions(path)
    return False


def is_test(path, name):
    return (ROOT / path).is_file() and name in definitions(ROOT / path)


def words(text):
    """Return the words of a page, without its markup."""
    text = re.sub(r"<[^<>\n]*>|\]\([^)]*\)|\\", "", text)
    return f" {' '.join(re.findall(r'[A-Za-z0-9_]+', text))} "


def test_every_rule_has_a_short_quote_a_function_and_a_test(rules):
    missing = [name for rule in rules for name in rule.enforced if not is_defined(name)]
    missing += [test for rule in rules for test in rule.tests if not is_test(*test)]
    assert missing == []
    assert all(rule.enforced and rule.tests for rule in rules)
    assert [rule.quote for rule in rules if not 2 <= len(rule.quote.split()) <= 15] == []
    assert len({rule.text for rule in rules}) == len(rules) >= 60


def test_quotes_are_in_their_pages(rules, vertex_pages):
    missing = []
    for rule in rules:
        page = vertex_pages / f"{rule.page}.md"
        if not page.is_file() or words(rule.quote) not in words(page.read_text()):
            missing.append((rule.page, rule.quote))
    assert missing == []
