"""Prices come from the table, to the cent; quota has the names that Vertex AI has for it."""

import datetime
import socket
import sys
from decimal import Decimal

import pytest

from pipelines import command_line, cost, recipe
from pipelines.compilation import planned_worker_pools
from trainer.errors import InputError
from trainer.price import UnknownPriceError, affordable_timeout

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

N1_STANDARD_4 = Decimal("0.21849885")
N1_STANDARD_8 = 2 * N1_STANDARD_4
SSD_100_GB = 100 * Decimal("0.000267808")
# 12 vCPUs at 0.031611, 85 GB at 0.004237 and an A100 at 2.933908 are 3.673385; 1.15 times that.
A2_HIGHGPU_1G = Decimal("4.22439275")
# 8 vCPUs at 0.024988, 32 GB at 0.0029275 and an L4 at 0.56004 are 0.853624; 1.15 times that.
G2_STANDARD_8 = Decimal("0.9816676")


def pools(name="digits", **values):
    return planned_worker_pools(recipe.load(name).with_values(values, place="test"))


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


def test_every_recipes_pools_are_priced_and_planned_without_a_call(monkeypatch, capsys):
    def refuse(*_, **__):
        raise AssertionError("a plan must ask no server")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("COLUMNS", "200")
    for name in recipe.names():
        loaded = recipe.load(name)
        planned = planned_worker_pools(loaded.parameters)
        hour = sum(
            pool["replica_count"]
            * (
                Decimal(str(cost.table().rates[pool["machine_spec"]["machine_type"]]))
                + pool["machine_spec"].get("accelerator_count", 0)
                * Decimal(
                    str(cost.table().rates.get(pool["machine_spec"].get("accelerator_type"), 0))
                )
                + pool["disk_spec"]["boot_disk_size_gb"]
                * Decimal(str(cost.table().rates[pool["disk_spec"]["boot_disk_type"]]))
            )
            for pool in planned
        )
        assert command_line.run(command_line.app, ["plan", name, "--minutes", "90"]) == 0
        shown = capsys.readouterr().out
        total = cost.money(hour * Decimal("1.5"))
        assert f"on demand {cost.money(hour)} USD an hour, {total} for the expected 90 min" in shown


def test_spot_is_cheaper_by_the_least_discount_seen_but_neither_disks_nor_management_are():
    prices = cost.table()
    # Of 1.15 of Compute Engine's price, 0.40 goes.
    assert prices.spot_rates["n1-standard-4"] == pytest.approx(0.189999 * 0.75)
    assert prices.spot_rates["pd-ssd"] == prices.rates["pd-ssd"]
    assert cost.price(pools(), prices, spot=True) < cost.price(pools(), prices)


def test_rates_of_ones_own_hold(capsys):
    rates = cost.parse_rates(["n1-standard-4=1.5", "pd-ssd=0"])
    assert cost.price(pools(), cost.table().overridden(rates)) == 3
    arguments = ["plan", "digits", "--rate", "n1-standard-4=1.5", "--rate", "pd-ssd=0"]
    assert command_line.run(command_line.app, arguments) == 0
    assert "3.00 USD an hour" in capsys.readouterr().out


def shown_by(capsys, *arguments):
    """The labeled lines of a plan: texts by label."""
    assert command_line.run(command_line.app, ["plan", *arguments]) == 0
    lines = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    texts = {}
    for line in lines:
        texts.setdefault(line[:10].rstrip(), []).append(line[10:])
    return texts


def test_each_label_of_a_plan_has_its_text_in_one_column(capsys):
    for name in recipe.names():
        labels = {"quota", "", "on demand", "spot", "pipeline", "prices", "excluded", "strategy"}
        assert set(shown_by(capsys, name)) == labels


def test_where_ones_own_rates_make_the_price_no_discount_is_spoken_of(capsys):
    rates = ["--rate", "n1-standard-8=1", "--rate", "NVIDIA_TESLA_V100=2"]
    own = shown_by(capsys, "cats_vs_dogs", *rates)
    assert own["on demand"] == own["spot"][:1]
    assert own["spot"][1:] == ["is priced as on demand: nothing is taken off the rates of --rate"]
    part = shown_by(capsys, "cats_vs_dogs", *rates[:2])
    assert part["on demand"] != part["spot"][:1]
    assert "40% off" in part["spot"][1]
    assert part["spot"][1].endswith("nothing is taken off --rate n1-standard-8")


def test_a_plan_says_when_the_job_would_be_cut_off_before_it_is_done(capsys):
    hour = cost.price(pools("cats_vs_dogs"), cost.table())
    short = shown_by(capsys, "cats_vs_dogs", "--minutes", "90", "--set", "max_cost=5")
    minutes = int(5 / hour * 60)
    (line,) = short["cut off"]
    assert line.startswith(f"max_cost=5 ends the job after {minutes} min, before the expected 90")
    # What it names as enough is, to the cent.
    enough = line.partition("set it to ")[2].split()[0]
    for given, cut in ((enough, False), (str(Decimal(enough) - Decimal("0.01")), True)):
        flags = ["--minutes", "90", "--set", f"max_cost={given}"]
        assert ("cut off" in shown_by(capsys, "cats_vs_dogs", *flags)) == cut
    (line,) = shown_by(capsys, "digits", "--minutes", "10", "--set", "timeout=300s")["cut off"]
    assert line.startswith("timeout=300s ends the job after 5 min")
    assert line.endswith("set it to 600s or more")
    exact = shown_by(capsys, "digits", "--minutes", "10", "--set", "timeout=600s")
    assert "cut off" not in exact


def test_a_price_of_ones_own_for_the_whole_job_prices_what_has_none(capsys):
    unknown = ["digits", "--minutes", "10", "--set", "chief_machine_type=foo-bar-4"]
    (line,) = shown_by(capsys, *unknown)["price"]
    assert "no price is known for foo-bar-4" in line
    priced = shown_by(capsys, *unknown, "--set", "price_per_hour=12")
    assert priced["on demand"][0].startswith("12.00 USD an hour, 2.00 for the expected 10 min")
    assert "spot" not in priced
    assert priced["prices"] == ["the job's is the parameter price_per_hour=12"]


def test_every_recipes_job_has_time_in_plenty_and_can_not_be_billed_for_a_day():
    for name in recipe.names():
        loaded = recipe.load(name)
        seconds = float(loaded.parameters.job.timeout.removesuffix("s"))
        assert 4 <= seconds / 60 / loaded.operation.expected_minutes <= 10


@pytest.mark.parametrize("text", ["n1-standard-4", "=1", "n1-standard-4=cheap", "x=-1", "x=nan"])
def test_a_rate_is_a_name_and_a_price(text):
    with pytest.raises(InputError, match="is not NAME=PRICE_AN_HOUR"):
        cost.parse_rates([text])


@pytest.mark.parametrize(
    # The second is Compute Engine's alone: Vertex AI's smallest is n1-standard-4.
    "machine_type", ["m1-ultramem-40", "n1-standard-2"],
)  # fmt: skip
def test_what_has_no_price_is_named(machine_type):
    values = {"chief_machine_type": machine_type}
    with pytest.raises(UnknownPriceError, match=f"no price is known for {machine_type}; give it"):
        cost.price(pools(**values), cost.table())


def test_each_line_of_the_table_says_where_it_is_from_when_and_how_sure_it_is():
    content = tomllib.loads(cost.PATH.read_text())
    checked = datetime.date.fromisoformat(content["date"])
    lines = [
        content["management"], content["spot"], content["pipeline"], *content["series"],
        *content["accelerators"], *content["disks"],
    ]  # fmt: skip
    for line in lines:
        assert content["sources"][line["source"]].startswith("https://")
        assert datetime.date.fromisoformat(line["date"]) <= checked
        assert line["status"] in ("listed", "derived", "unconfirmed")
        assert line["how"]


def test_a_plan_with_an_unconfirmed_price_says_so_on_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    a100 = [
        "plan", "digits", "--set", "worker_count=0", "--set", "strategy=auto",
        "--set", "chief_machine_type=a2-highgpu-1g", "--set", "accelerator_type=NVIDIA_TESLA_A100",
        "--set", "accelerator_count=1",
    ]  # fmt: skip
    doubt = "the price of a2-highgpu-1g is unconfirmed: "
    assert command_line.run(command_line.app, a100) == 0
    assert doubt in capsys.readouterr().out
    # One's own price is in no doubt; nor is one that a page shows.
    assert command_line.run(command_line.app, [*a100, "--rate", "a2-highgpu-1g=4"]) == 0
    assert "unconfirmed" not in capsys.readouterr().out
    assert command_line.run(command_line.app, ["plan", "digits"]) == 0
    shown = capsys.readouterr().out
    assert "unconfirmed" not in shown
    assert "40% off machines, the least seen: it changes daily, and no discount" in shown


def test_flex_start_counts_against_the_quota_of_preemptible_machines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    l4 = [
        "plan", "digits", "--set", "chief_machine_type=g2-standard-8",
        "--set", "accelerator_type=NVIDIA_L4", "--set", "accelerator_count=1",
    ]  # fmt: skip
    flexible = [*l4, "--set", "scheduling_strategy=FLEX_START"]
    assert command_line.run(command_line.app, flexible) == 0
    shown = capsys.readouterr().out
    assert (
        "2 of aiplatform.googleapis.com/custom_model_training_preemptible_nvidia_l4_gpus" in shown
    )
    assert "16 of aiplatform.googleapis.com/custom_model_training_preemptible_g2_cpus" in shown
    assert "FLEX_START is billed below on demand, at prices that are not in the table" in shown
    assert command_line.run(command_line.app, l4) == 0
    assert "preemptible" not in capsys.readouterr().out


def test_quota_is_named_as_vertex_ai_names_it():
    values = {"worker_count": 3, "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}
    service = "aiplatform.googleapis.com/custom_model_training"
    assert {(one.metric, one.amount) for one in cost.quotas(pools(**values))} == {
        (f"{service}_cpus", 16),
        (f"{service}_nvidia_t4_gpus", 8),
        (f"{service}_pd_ssd", 400),
    }
    assert {one.metric for one in cost.quotas(pools(**values), preemptible=True)} == {
        f"{service}_preemptible_cpus",
        f"{service}_preemptible_nvidia_t4_gpus",
        f"{service}_pd_ssd",
    }
    a2 = {"chief_machine_type": "a2-ultragpu-4g", "accelerator_type": "NVIDIA_A100_80GB",
          "accelerator_count": 4, "worker_count": 0, "strategy": "auto"}  # fmt: skip
    assert {(one.metric, one.amount) for one in cost.quotas(pools(**a2))} >= {
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
