"""The tables of machines agree with Google's documentation, line by line."""

import re

import pytest

from vertex.facts.jobs import SCHEDULING_STRATEGIES
from vertex.facts.regions import CONTENT as REGIONS
from vertex.machines.machine_types import (
    accelerators,
    disk_types,
    load_content,
    serving_types,
    types,
)


@pytest.fixture(scope="module")
def page(vertex_pages):
    """Return a function that reads the lines of a page that hold text."""

    def lines(name):
        text = (vertex_pages / "machine-learning" / f"{name}.md").read_text()
        return [line.strip() for line in text.splitlines() if line.strip()]

    return lines


@pytest.fixture(scope="module")
def compute(page):
    return page("training/configure-compute")


def between(lines, first, last):
    start = lines.index(first) + 1
    return lines[start : next(n for n, line in enumerate(lines) if n > start and last in line)]


def matching(pattern, lines):
    """Return the group of a pattern in each line that it matches."""
    return {match[1] for match in map(re.compile(pattern).fullmatch, lines) if match}


def test_machine_types_are_those_of_the_page(compute):
    listed = between(compute, "## Machine types", "\\* Machine types marked with asterisks")
    assert matching("- .*?`(.*?)`.*", listed) == set(types())
    # An asterisk: "must be used with certain GPUs or TPUs".
    marked = matching("- .*?`(.*?)`.*<sup>.*", listed)
    tpus = {name for family in load_content()["series"] for name in family.get("tpus", ())}
    assert marked == {kind.name for kind in types().values() if kind.accelerator} | tpus


def test_prediction_machines_are_those_of_the_page(page):
    listed = between(
        page("predictions/configure-compute"), "### Machine types: CPU", "### Machine types: GPU"
    )
    assert matching(r"\| `([a-z0-9-]+)` .*", listed) == set(serving_types())


def test_accelerators_are_those_of_the_page(compute):
    listed = between(compute, "## GPUs", "<sup>\\*</sup> It's recommended")
    assert matching("- .*?`(.*?)`.*", listed) == set(accelerators())


def test_numbers_of_accelerators_are_those_of_the_page(compute):
    cells = between(compute, "Valid numbers of GPUs for each machine type", "The following examp")
    columns = [cell.strip("`") for cell in cells[1 : 1 + len(accelerators())]]
    assert columns == list(accelerators())
    # The text of the page leaves out empty cells.
    rows: dict[str, list[list[int]]] = {}
    for cell in cells[1 + len(columns) :]:
        if cell.startswith("`"):
            row = rows.setdefault(cell.strip("`"), [])
        else:
            row.append([int(count) for count in cell.split(", ")])
    expected = {}
    for name, machine in types().items():
        counts = {machine.accelerator: (machine.count,), **machine.attached}
        expected[name] = [list(counts[column]) for column in columns if column in counts]
    assert rows == {name: row for name, row in expected.items() if row}


def test_disks_and_their_default_are_those_of_the_page(compute):
    listed = between(compute, "You can set this field to one of the following:", "The default valu")
    assert matching(".*?`(.*?)`.*", listed) == set(disk_types())
    (default,) = [line for line in compute if line.startswith("The default value is `pd-")]
    named = re.findall("`(.*?)`", default)
    assert named == ["pd-ssd", "hyperdisk-balanced", "a3-ultragpu-8g", "a4-highgpu-8g"]
    for name, machine in types().items():
        if machine.disks and name in named:
            assert machine.disks == ("hyperdisk-balanced",), name
        # Newer machines have Hyperdisk alone, which the page does not say.
        elif machine.disks and machine.disks != ("hyperdisk-balanced",):
            assert machine.disks[0] == named[0], name


def test_quotas_are_those_of_the_page(page):
    lines = page("quotas")
    gpus = matching("Number of (.* GPUs) for training, .*", lines)
    assert gpus == {kind.quota_title for kind in accelerators().values()}
    cpus = matching("Number of (.* CPUs) for training, .*", lines)
    assert "N1 and E2 CPUs" in cpus
    of_cpus = {
        kind.quota.removesuffix("cpus").strip("_") for kind in types().values() if kind.quota
    }
    # G2's is in the console alone.
    assert of_cpus - {"", "g2"} == {title.split()[-2].lower() for title in cpus} - {"e2"}
    of_disks = matching("(.*) usage .GB. during training.*", lines)
    assert of_disks == {disk["quota_title"] for disk in load_content()["disks"]}


def test_scheduling_strategies_are_those_of_the_page(vertex_pages):
    text = (vertex_pages / "reference/rest/Shared.Types/Strategy.md").read_text()
    described = dict(re.findall(r"^`(\w+)`\n\n(.*)", text, re.MULTILINE))
    current = {name for name, said in described.items() if not said.startswith("Deprecated.")}
    assert current == {*SCHEDULING_STRATEGIES, "STRATEGY_UNSPECIFIED"}


def test_regions_and_their_accelerators_are_those_of_the_page(page):
    lines = page("general/locations")
    listed = between(lines, "## Available locations for machine learning services", "### Feature")
    regions = REGIONS["names"]
    assert matching(r"- .* \( `(.*?)` \)", listed) == set(regions)
    named = {"A100 40GB": "NVIDIA_TESLA_A100", "A100 80GB": "NVIDIA_A100_80GB"}
    for name in accelerators():
        parts = name.removeprefix("NVIDIA_").removeprefix("TESLA_").split("_")
        short = "RTX PRO 6000" if "RTX" in parts else parts[0] + " Mega" * ("MEGA" in parts)
        named.setdefault(short, name)
    expected: dict[str, set[str]] = {name: set() for name in regions}
    for line in between(lines, "### Using accelerators", "### Machine type requirements"):
        if row := re.fullmatch(r"\| `(.*?)` .*\| .* \| (.*?) *\|", line):
            # A dagger: not available for training.
            cells = [
                cell.partition(" <")[0].strip() for cell in row[2].split(",") if "†" not in cell
            ]
            expected[row[1]] = {named[cell] for cell in cells if not cell.startswith("TPU")}
    held = {
        region: {name for name, kind in accelerators().items() if region in kind.regions}
        for region in regions
    }
    assert held == expected
    # The first table has features, the second zones.
    text = "\n".join(between(lines, "### Feature availability", "</table>"))
    rows = re.findall("<code [^>]*>([a-z]+-[a-z]+[0-9]+)</code>(.*?)</tr>", text, re.DOTALL)
    for key, feature in (
        ("without_monitoring", "Model Monitoring"),
        ("without_experiments", "Gemini Enterprise Agent Platform Experiments"),
    ):
        having = {name for name, features in rows if f"<li>{feature}</li>" in features}
        assert set(regions) - having == set(REGIONS[key])
    # A region without a row has no feature that is listed.
    features = ("Custom model training", "Agent Platform Pipelines", "Model Registry")
    for feature in (*features, "Custom model batch inference", "Vertex AI TensorBoard"):
        having = {name for name, held in rows if f"<li>{feature}</li>" in held}
        assert set(regions) - having == {"asia-south2"}


def test_flex_start_has_the_accelerators_of_the_page(page):
    lines = page("training/schedule-jobs-dws")
    (line,) = [line for line in lines if "training job requests" in line and line.endswith("GPUs.")]
    named = re.findall(r"[A-Z]+[0-9]+", line)
    assert named == ["L4", "A100", "H100", "H200", "B200"]
    flexible = {kind.name for kind in accelerators().values() if kind.flex_start}
    pattern = f".*_({'|'.join(named)})(_.*)?"
    assert flexible == {name for name in accelerators() if re.fullmatch(pattern, name)}
