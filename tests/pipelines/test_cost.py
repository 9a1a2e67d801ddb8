"""Prices come from the table, to the cent; quota has the names that Vertex AI has for it."""

import datetime
import re
import socket
from decimal import Decimal

import pytest

from pipelines import recipe
from pipelines.machines import cost
from trainer.machines.machine_types import disk_types, types
from trainer.machines.price import affordable_timeout
from trainer.machines.worker_pools import worker_pool_specs
from trainer.toml_reader import tomllib

N1_STANDARD_4 = Decimal("0.21849885")
N1_STANDARD_8 = 2 * N1_STANDARD_4
SSD_100_GB = 100 * Decimal("0.000267808")
# 12 vCPUs at 0.031611, 85 GB at 0.004237 and an A100 at 2.933908 are 3.673385; 1.15 times that.
A2_HIGHGPU_1G = Decimal("4.22439275")
# 8 vCPUs at 0.024988, 32 GB at 0.0029275 and an L4 at 0.56004 are 0.853624; 1.15 times that.
G2_STANDARD_8 = Decimal("0.9816676")


def pools(name="digits", **values):
    return worker_pool_specs(recipe.load(name).with_values(values, place="test").machines)


@pytest.mark.parametrize(
    ("name", "values", "hour"),
    [
        ("digits", {}, 2 * (N1_STANDARD_4 + SSD_100_GB)),
        ("flowers", {}, 2 * (N1_STANDARD_8 + SSD_100_GB)),
        (
            "digits",
            {"worker_count": 3, "accelerator_type": "NVIDIA_TESLA_V100", "accelerator_count": 2},
            4 * (N1_STANDARD_4 + 2 * Decimal("2.852") + SSD_100_GB),
        ),
        (
            "digits",
            {"worker_count": 0, "strategy": "auto", "chief_machine_type": "a2-highgpu-2g",
             "accelerator_type": "NVIDIA_TESLA_A100", "accelerator_count": 2,
             "boot_disk_type": "pd-standard", "boot_disk_size_gb": 500},
            # An A2 machine is priced with its accelerators.
            2 * A2_HIGHGPU_1G + 500 * Decimal("0.000063014"),
        ),
        (
            "digits",
            {"worker_count": 7, "chief_machine_type": "g2-standard-8",
             "accelerator_type": "NVIDIA_L4", "accelerator_count": 1},
            8 * (G2_STANDARD_8 + SSD_100_GB),
        ),
        (
            "digits",
            {"worker_count": 0, "strategy": "auto", "chief_machine_type": "a3-highgpu-8g",
             "accelerator_type": "NVIDIA_H100_80GB", "accelerator_count": 8,
             "boot_disk_size_gb": 2000},
            # A bill's total, an hour.
            Decimal("101.5429684"),
        ),
        (
            "digits",
            {"worker_count": 0, "strategy": "auto", "chief_machine_type": "c2-standard-8"},
            # 8 vCPUs at 0.03398 and 32 GB at 0.00455 are 0.41744.
            Decimal("0.480056") + SSD_100_GB,
        ),
    ],
)  # fmt: skip
def test_an_hour_costs_what_a_hand_calculation_says(name, values, hour):
    assert cost.money(cost.price(pools(name, **values), cost.table())) == cost.money(hour)


def test_every_recipes_pools_are_priced_and_planned_without_a_call(monkeypatch, command):
    def refuse(*_, **__):
        raise AssertionError("a plan must ask no server")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("VERTEX_GPU_IMAGE", "image:gpu")
    for name in recipe.names():
        hour = cost.price(pools(name), cost.table())
        code, shown, _ = command("plan", name, "--minutes", "90")
        assert code == 0
        total = cost.money(hour * Decimal("1.5"))
        assert f"on demand {cost.money(hour)} USD an hour, {total} for the expected 90 min" in shown


def test_spot_is_cheaper_by_the_least_discount_seen_but_neither_disks_nor_management_are():
    prices = cost.table()
    # Of 1.15 of Compute Engine's price, 0.40 goes.
    assert prices.spot_rates["n1-standard-4"] == pytest.approx(0.189999 * 0.75)
    assert prices.spot_rates["pd-ssd"] == prices.rates["pd-ssd"]
    assert cost.price(pools(), prices, spot=True) < cost.price(pools(), prices)


def test_rates_of_ones_own_hold(command):
    rates = cost.parse_rates(["n1-standard-4=1.5", "pd-ssd=0"])
    assert cost.price(pools(), cost.table().overridden(rates)) == 3
    code, shown, _ = command("plan", "digits", "--rate", "n1-standard-4=1.5", "--rate", "pd-ssd=0")
    assert (code, "3.00 USD an hour" in shown) == (0, True)


def test_every_recipes_job_has_time_in_plenty_and_can_not_be_billed_for_a_day():
    for name in recipe.names():
        loaded = recipe.load(name)
        seconds = float(loaded.parameters.job.timeout.removesuffix("s"))
        assert 4 <= seconds / 60 / loaded.run_options.expected_minutes <= 10


def test_the_page_names_every_machine_and_disk_without_a_price():
    page = (recipe.DIRECTORY.parents[1] / "docs" / "vertex.md").read_text()
    (sentence,) = re.findall(r"No public page shows prices of (.*?):", page, re.DOTALL)
    named = re.findall("`(.*?)`", sentence)
    offered = [name for name, one in types().items() if not one.refused]
    unpriced = [one for one in (*offered, *disk_types()) if one not in cost.table().rates]
    assert {one for one in unpriced if not one.startswith(tuple(named))} == set()
    assert {one for one in named if not any(name.startswith(one) for name in unpriced)} == set()


def test_each_line_of_the_table_says_where_it_is_from_when_and_how_sure_it_is():
    content = tomllib.loads(cost.PATH.read_text())
    checked = datetime.date.fromisoformat(content["date"])
    lines = [
        content["management"], content["spot"], content["pipeline"], *content["series"],
        *content["machines"], *content["accelerators"], *content["disks"],
    ]  # fmt: skip
    for line in lines:
        assert content["sources"][line["source"]].startswith("https://")
        assert datetime.date.fromisoformat(line["date"]) <= checked
        assert line["status"] in ("listed", "derived", "unconfirmed")
        assert line["how"]


def test_quota_is_named_as_vertex_ai_names_it():
    values = {"worker_count": 3, "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}
    service = "aiplatform.googleapis.com/custom_model_training"
    assert cost.quotas(pools(**values)) == {
        f"{service}_cpus": 16,
        f"{service}_nvidia_t4_gpus": 8,
        f"{service}_pd_ssd": 400,
    }
    assert cost.quotas(pools(**values), "SPOT").keys() == {
        f"{service}_preemptible_cpus",
        f"{service}_preemptible_nvidia_t4_gpus",
        f"{service}_pd_ssd",
    }
    n4 = {"chief_machine_type": "n4-standard-8", "boot_disk_type": "hyperdisk-balanced"}
    assert cost.quotas(pools(**n4)) == {
        f"{service}_n4_cpus": 16,
        f"{service}_hyperdisk_balanced": 200,
    }
    a2 = {"chief_machine_type": "a2-ultragpu-4g", "accelerator_type": "NVIDIA_A100_80GB",
          "accelerator_count": 4, "worker_count": 0, "strategy": "auto"}  # fmt: skip
    assert cost.quotas(pools(**a2)).items() >= {
        (f"{service}_a2_cpus", 48),
        (f"{service}_nvidia_a100_80gb_gpus", 4),
    }


@pytest.mark.parametrize(("max_cost", "seconds"), [(0.1, 2), (1, 3), (7.77, 4), (1000, 1)])
def test_a_job_that_runs_until_its_timeout_never_costs_more_than_max_cost(max_cost, seconds):
    rates = {**cost.table().rates, "n1-standard-4": 0.731 * seconds}
    hour = cost.price(pools(), cost.table().overridden(rates))
    timeout = affordable_timeout("86400s", max_cost, 0.0, pools(), rates)
    longest = Decimal(timeout.removesuffix("s"))
    assert hour * longest / 3600 <= Decimal(str(max_cost))
    # And not a second less than could be had.
    assert longest == 86400 or hour * (longest + 1) / 3600 > Decimal(str(max_cost))
