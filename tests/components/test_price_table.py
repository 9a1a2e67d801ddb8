"""Prices of jobs come from the table, and quota has Vertex AI's names."""

import datetime
import socket
import tomllib
from decimal import Decimal

import pytest

from components.planning.worker_pools import build_worker_pool_specs
from pipelines import recipe
from tests.pipelines.conftest import RECIPES
from vertex.machines import price_table
from vertex.machines.machine_types import accelerators, disk_types, types
from vertex.machines.price_table import JobCost, format_money
from vertex.machines.quotas import list_quotas

N1_STANDARD_4 = Decimal("0.21849885")
N1_STANDARD_8 = 2 * N1_STANDARD_4
SSD_100_GB = 100 * Decimal("0.000267808")
# 12 vCPUs at 0.031611, 85 GB at 0.004237 and an A100 at 2.933908 are 3.673385; 1.15 times that.
A2_HIGHGPU_1G = Decimal("4.22439275")
# 8 vCPUs at 0.024988, 32 GB at 0.0029275 and an L4 at 0.56004 are 0.853624; 1.15 times that.
G2_STANDARD_8 = Decimal("0.9816676")


def pools(name="digits", **values):
    return build_worker_pool_specs(recipe.load(name).with_values(values, origin="test").machines)


def alone(machine_type, accelerator="", count=0):
    """Return the settings of a job of one machine."""
    accelerators = {"accelerator_type": accelerator, "accelerator_count": count}
    settings = {"worker_count": 0, "strategy": "auto"}
    return {"chief_machine_type": machine_type, **accelerators, **settings}


V100 = {"worker_count": 3, "accelerator_type": "NVIDIA_TESLA_V100", "accelerator_count": 2}
T4 = {**V100, "accelerator_type": "NVIDIA_TESLA_T4"}
A2 = alone("a2-highgpu-2g", "NVIDIA_TESLA_A100", 2)
A2_ULTRA = alone("a2-ultragpu-4g", "NVIDIA_A100_80GB", 4)
A3 = alone("a3-highgpu-8g", "NVIDIA_H100_80GB", 8)
L4 = alone("g2-standard-8", "NVIDIA_L4", 1)
N4 = {"chief_machine_type": "n4-standard-8", "boot_disk_type": "hyperdisk-balanced"}
LARGE_DISK = {"boot_disk_type": "pd-standard", "boot_disk_size_gb": 500}


@pytest.mark.parametrize(
    ("values", "hour"),
    [
        ({"name": "digits"}, 2 * (N1_STANDARD_4 + SSD_100_GB)),
        ({"name": "flowers"}, 2 * (N1_STANDARD_8 + SSD_100_GB)),
        (V100, 4 * (N1_STANDARD_4 + 2 * Decimal("2.852") + SSD_100_GB)),
        # An A2 machine is priced with its accelerators.
        ({**A2, **LARGE_DISK}, 2 * A2_HIGHGPU_1G + 500 * Decimal("0.000063014")),
        ({**L4, "worker_count": 7}, 8 * (G2_STANDARD_8 + SSD_100_GB)),
        # A bill's total, an hour.
        ({**A3, "boot_disk_size_gb": 2000}, Decimal("101.5429684")),
        # 8 vCPUs at 0.03398 and 32 GB at 0.00455 are 0.41744; 1.15 times that.
        (alone("c2-standard-8"), Decimal("0.480056") + SSD_100_GB),
    ],
)
def test_price_of_an_hour_equals_a_hand_calculation(values, hour):
    price = price_table.load_table().hourly_price(pools(**values))
    assert format_money(price) == format_money(hour)


def test_plan_prices_every_recipe_without_a_request(monkeypatch, succeed):
    def refuse(*_, **__):
        raise AssertionError("a plan must ask no server")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("VERTEX_GPU_IMAGE", "image:gpu")
    for name in RECIPES:
        hour = price_table.load_table().hourly_price(pools(name))
        shown = succeed(f"plan {name} --minutes 90")
        hourly, total = (format_money(part * hour) for part in (1, Decimal("1.5")))
        assert f"on demand {hourly} USD an hour, {total} for the expected 90 min" in shown


def test_spot_discount_excludes_disks_and_management():
    prices = price_table.load_table()
    # Of 1.15 of Compute Engine's price, 0.40 goes.
    assert prices.spot_rates["n1-standard-4"] == pytest.approx(0.189999 * 0.75)
    assert prices.spot_rates["pd-ssd"] == prices.rates["pd-ssd"]
    assert prices.hourly_price(pools(), spot=True) < prices.hourly_price(pools())


def test_plan_names_the_part_without_a_price_and_prices_the_rest(succeed):
    n4 = "--set chief_machine_type=n4-standard-8 --set boot_disk_type=hyperdisk-balanced"
    shown = succeed(f"plan digits {n4}").replace("\n", " ")
    # Twice 8 vCPUs at 0.030821 and 32 GB at 0.004131, and 15%.
    assert "no price for hyperdisk-balanced (all else: 0.87 an hour); give --rate" in shown
    assert "0.89 USD an hour" in succeed(f"plan digits {n4} --rate hyperdisk-balanced=0.0001")


def test_own_rates_replace_those_of_the_table(succeed):
    shown = succeed("plan digits --rate n1-standard-4=1.5 --rate pd-ssd=0")
    assert "3.00 USD an hour" in shown


def test_timeout_is_4_to_10_times_the_expected_time():
    for name in RECIPES:
        loaded = recipe.load(name)
        seconds = float(loaded.parameters.job.timeout.removesuffix("s"))
        assert 4 <= seconds / 60 / loaded.run_options.expected_minutes <= 10


def test_every_rate_is_of_a_series_an_accelerator_or_a_disk_that_exists():
    content = tomllib.loads(price_table.PATH.read_text())
    known = {
        "series": {kind.series for kind in types().values()},
        "accelerators": set(accelerators()),
        "disks": set(disk_types()),
    }
    for part, names in known.items():
        assert {line["name"] for line in content[part]} <= names
    rates = price_table.load_table().rates
    # By the bill of an a3-highgpu-8g, and by Compute Engine's price of an m1-ultramem-160.
    assert rates["a3-highgpu-8g"] == pytest.approx(8 * rates["a3-highgpu-1g"])
    assert rates["a2-ultragpu-8g"] == pytest.approx(40.5504 * 1.15)
    assert rates["m1-ultramem-160"] == pytest.approx(25.2156 * 1.15, rel=1e-4)
    assert "a4-highgpu-8g" not in rates and "n2d-standard-2" not in rates


def test_every_price_has_a_source_a_date_and_a_status():
    content = tomllib.loads(price_table.PATH.read_text())
    checked = datetime.date.fromisoformat(content["date"])
    lines = [content[name] for name in ("management", "spot", "pipeline")]
    for name in ("series", "accelerators", "disks", "data"):
        lines += content[name]
    for line in lines:
        assert content["sources"][line["source"]].startswith("https://")
        assert datetime.date.fromisoformat(line["date"]) <= checked
        assert line["status"] in ("listed", "derived", "unconfirmed")
        assert line["how"]


@pytest.mark.parametrize(
    ("values", "strategy", "quota"),
    [
        (T4, "STANDARD", {"cpus": 16, "nvidia_t4_gpus": 8, "pd_ssd": 400}),
        (T4, "SPOT", {"preemptible_cpus": 16, "preemptible_nvidia_t4_gpus": 8, "pd_ssd": 400}),
        (N4, "STANDARD", {"n4_cpus": 16, "hyperdisk_balanced": 200}),
        (A2_ULTRA, "STANDARD", {"a2_cpus": 48, "nvidia_a100_80gb_gpus": 4, "pd_ssd": 100}),
    ],
)
def test_quota_has_the_names_of_vertex_ai(values, strategy, quota):
    service = "aiplatform.googleapis.com/custom_model_training"
    steps = {"cpus": 4}  # of the pipeline's steps, each on an e2-standard-4
    expected = {f"{service}_{name}": amount for name, amount in {**steps, **quota}.items()}
    assert list_quotas(pools(**values), strategy) == expected


@pytest.mark.parametrize(("max_cost", "seconds"), [(0.1, 2), (1, 3), (7.77, 4), (1000, 1)])
def test_timed_out_job_costs_at_most_max_cost(max_cost, seconds):
    rates = {**price_table.load_table().rates, "n1-standard-4": 0.731 * seconds}
    hour = price_table.load_table().override(rates).hourly_price(pools())
    timeout = JobCost(
        pools=pools(), rates=rates, price_per_hour=0.0, max_cost=max_cost
    ).limit_timeout("86400s")
    longest = Decimal(timeout.removesuffix("s"))
    assert hour * longest / 3600 <= Decimal(str(max_cost))
    # A second more would cost more.
    assert longest == 86400 or hour * (longest + 1) / 3600 > Decimal(str(max_cost))
