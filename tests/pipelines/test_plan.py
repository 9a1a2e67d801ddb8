"""A plan shows prices, quota, and when a job would be cut off."""

import pytest
import yaml

from pipelines import compilation, recipe
from pipelines.machines import cost
from trainer.errors import InputError
from trainer.machines.worker_pools import worker_pool_specs


@pytest.fixture
def plan(command, monkeypatch):
    """Runs `plan`, which must succeed; returns what it shows."""
    monkeypatch.setenv("VERTEX_GPU_IMAGE", "image:gpu")

    def run(*arguments):
        code, shown, errors = command("plan", *arguments)
        assert code == 0, errors
        return shown

    return run


@pytest.fixture
def labeled(plan):
    """Runs `plan`; returns its labeled lines: texts by label."""

    def run(*arguments):
        texts = {}
        for line in plan(*arguments).partition("\n\n")[2].splitlines():
            texts.setdefault(line[:10].rstrip(), []).append(line[10:])
        return texts

    return run


def test_each_label_of_a_plan_has_its_text_in_one_column(labeled):
    for name in recipe.names():
        labels = {"quota", "", "on demand", "spot", "pipeline", "prices", "excluded", "strategy"}
        assert set(labeled(name)) == labels


def test_ones_own_rates_get_no_discount(labeled):
    rates = ["--rate", "n1-standard-8=1", "--rate", "NVIDIA_TESLA_V100=2"]
    own = labeled("cats_vs_dogs", *rates)
    assert own["on demand"] == own["spot"][:1]
    assert own["spot"][1].endswith("; rates of --rate get no discount")
    part = labeled("cats_vs_dogs", *rates[:2])
    assert part["on demand"] != part["spot"][:1]


def test_a_plan_says_when_the_job_would_be_cut_off_before_it_is_done(labeled):
    pools = worker_pool_specs(recipe.load("cats_vs_dogs").parameters.machines)
    hour = cost.price(pools, cost.table())
    short = labeled("cats_vs_dogs", "--minutes", "90", "--set", "max_cost=5")
    minutes = int(5 / hour * 60)
    (line,) = short["cut off"]
    assert line.startswith(f"max_cost=5 ends the job after {minutes} min, before the expected 90")
    assert line.endswith("raise it, or use cheaper machines")
    (line,) = labeled("digits", "--minutes", "10", "--set", "timeout=300s")["cut off"]
    assert line.startswith("timeout=300s ends the job after 5 min")
    assert line.endswith("set it to 600s or more")
    exact = labeled("digits", "--minutes", "10", "--set", "timeout=600s")
    assert "cut off" not in exact


def test_a_price_of_ones_own_for_the_whole_job_prices_what_has_none(labeled):
    unknown = ["digits", "--minutes", "10", "--set", "chief_machine_type=n4-standard-4"]
    unknown += ["--set", "boot_disk_type=hyperdisk-balanced"]
    (line,) = labeled(*unknown)["price"]
    assert "no price is known for hyperdisk-balanced" in line
    priced = labeled(*unknown, "--set", "price_per_hour=12")
    assert priced["on demand"][0].startswith("12.00 USD an hour, 2.00 for the expected 10 min")
    assert "spot" not in priced
    assert priced["prices"] == ["of the job: the parameter price_per_hour=12"]


def test_a_plan_with_an_unconfirmed_price_says_so_on_screen(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    a100 = [
        "digits", "--set", "worker_count=0", "--set", "strategy=auto",
        "--set", "chief_machine_type=a2-highgpu-1g", "--set", "accelerator_type=NVIDIA_TESLA_A100",
        "--set", "accelerator_count=1",
    ]  # fmt: skip
    doubt = "the price of a2-highgpu-1g is unconfirmed: "
    assert doubt in plan(*a100)
    # One's own price is in no doubt; nor is one that a page shows.
    assert "unconfirmed" not in plan(*a100, "--rate", "a2-highgpu-1g=4")
    shown = plan("digits")
    assert "unconfirmed" not in shown
    assert "40% off machines, the smallest discount seen: it changes daily and" in shown


def test_flex_start_counts_against_the_quota_of_preemptible_machines(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    l4 = [
        "digits", "--set", "chief_machine_type=g2-standard-8",
        "--set", "accelerator_type=NVIDIA_L4", "--set", "accelerator_count=1",
    ]  # fmt: skip
    shown = plan(*l4, "--set", "scheduling_strategy=FLEX_START")
    assert (
        "2 of aiplatform.googleapis.com/custom_model_training_preemptible_nvidia_l4_gpus" in shown
    )
    assert "16 of aiplatform.googleapis.com/custom_model_training_preemptible_g2_cpus" in shown
    assert "FLEX_START costs less than on demand; its prices are not in the table" in shown
    assert "preemptible" not in plan(*l4)


def test_an_evaluation_counts_against_the_quota_of_training(labeled, own_recipe):
    own_recipe(
        'source = "digits"\n[step_machines]\nevaluation = {accelerator_type = "NVIDIA_L4"}\n'
    )
    l4 = "accelerator_type=NVIDIA_L4", "accelerator_count=1", "chief_machine_type=g2-standard-8"
    spot = *l4, "scheduling_strategy=SPOT"
    for given, counted in (
        ((), ["nvidia_l4_gpus"]),
        (l4, ["nvidia_l4_gpus"]),  # They follow each other: one is enough.
        (spot, ["nvidia_l4_gpus", "preemptible_nvidia_l4_gpus"]),
    ):
        flags = [word for setting in given for word in ("--set", setting)]
        quota = [line.split() for line in labeled("mine", *flags)["quota"]]
        metric = "aiplatform.googleapis.com/custom_model_training_"
        found = {name: amount for amount, _, name in quota if name.endswith("_gpus")}
        assert found == {f"{metric}{one}": "1" for one in counted}


def test_an_endpoint_is_priced_by_the_hour_where_a_run_deploys(labeled):
    assert "endpoint" not in labeled("digits")
    (line,) = labeled("digits", "--set", "deploy_champion=true")["endpoint"]
    assert line.startswith("1 x n1-standard-4: 0.22 USD an hour until --undeploy: the champion")


def test_a_batch_prediction_is_priced_by_the_hour(plan, refused):
    batch = ["digits", "--batch", "gs://bucket/*.jsonl", "--set", "replica_count=3"]
    assert plan(*batch).startswith(
        "batch     3 x n1-standard-4: 0.66 USD an hour until the job ends; how"
    )
    assert "3 x n1-standard-4: 3.00 USD an hour" in plan(*batch, "--rate", "n1-standard-4=1")
    assert "--minutes is for training" in refused("plan", *batch, "--minutes", "3")


def test_a_steps_machine_is_compiled_in_and_priced(labeled, own_recipe):
    own_recipe(
        'source = "digits"\n[step_machines]\nrecords = {cpus = 30, memory_gb = 100}\n'
        'evaluation = {accelerator_type = "NVIDIA_L4"}\n'
    )
    text = compilation.compiled(recipe.load("mine"), "image:1", "image:gpu")
    executors = yaml.safe_load(text)["deploymentSpec"]["executors"]
    sized = {name: one["container"].get("resources") for name, one in executors.items()}
    evaluation = sized.pop("exec-evaluate-model")
    assert [name for name, resources in sized.items() if resources] == ["exec-create-tfrecords"]
    assert sized["exec-create-tfrecords"]["resourceCpuLimit"] == "30"
    assert sized["exec-create-tfrecords"]["resourceMemoryLimit"] == "100G"
    assert evaluation["resourceCpuLimit"] == "4"
    accelerator = evaluation["accelerator"]
    assert (accelerator["resourceType"], accelerator["resourceCount"]) == ("NVIDIA_L4", "1")
    images = {name: one["container"]["image"] for name, one in executors.items()}
    assert images["exec-evaluate-model"] == "image:gpu"
    assert images["exec-register-model"] == images["exec-create-tfrecords"] == "image:1"
    line, other = labeled("mine")["step"]
    rates = cost.table().rates
    hour = rates["e2-standard-32"]
    assert line.startswith(f"records: {hour:.2f} USD an hour for 30 CPUs and 100 GB: the price")
    assert "e2-standard-32" in line
    hour = rates["g2-standard-4"]
    assert other.startswith(
        f"evaluation: {hour:.2f} USD an hour for 4 CPUs and 16 GB with 1 x NVIDIA_L4: the price "
        "of the cheapest fitting type, g2-standard-4;"
    )


def test_a_step_with_an_accelerator_is_priced_with_it():
    prices = cost.table()
    hour = prices.rates["n1-standard-8"] + prices.rates["NVIDIA_TESLA_T4"]
    price, name = cost.step_price(8, 30, "NVIDIA_TESLA_T4", prices)
    assert (float(price), name) == (pytest.approx(hour), "n1-standard-8")
    with pytest.raises(InputError, match="64 CPUs and 16 GB with NVIDIA_TESLA_T4"):
        cost.step_price(64, 16, "NVIDIA_TESLA_T4", prices)
