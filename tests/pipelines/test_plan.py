"""A plan shows prices, quota, and when a job would be cut off."""

from pathlib import Path

import pytest
import yaml

from components.planning.worker_pools import build_worker_pool_specs
from pipelines import compilation, recipe
from tests.json_server import JsonServer
from tests.pipelines.conftest import RECIPES
from vertex.errors import InputError
from vertex.formats import duration
from vertex.machines import price_table
from vertex.machines.quotas import SERVING_CPUS, find_reserved_range

L4 = {"chief_machine_type": "g2-standard-8", "accelerator_type": "NVIDIA_L4"}
L4 |= {"accelerator_count": 1}
A100 = {"chief_machine_type": "a2-highgpu-1g", "accelerator_type": "NVIDIA_TESLA_A100"}
A100 |= {"accelerator_count": 1, "worker_count": 0, "strategy": "auto"}
PRICES = ("on demand", "pipeline", "total")
SPLIT_BY_TIME = 'split_by={"time": "trip_start_timestamp"}'
METRIC = "aiplatform.googleapis.com/custom_model_training_"


@pytest.fixture
def plan(succeed, monkeypatch):
    """Run `plan` with settings; return its output."""
    monkeypatch.setenv("VERTEX_GPU_IMAGE", "image:gpu")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments, **settings):
        flags = [f"--set={name}={value}" for name, value in settings.items()]
        return succeed("plan", *arguments, *flags)

    return run


@pytest.fixture
def labeled(plan, monkeypatch):
    """Run `plan`; return its labeled lines: texts by label."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments, **settings):
        texts = {}
        for line in plan(*arguments, **settings).partition("\n\n")[2].splitlines():
            texts.setdefault(line[:10].rstrip(), []).append(line[10:])
        return texts

    return run


def test_labels_of_a_plan_are_aligned(labeled):
    for name in RECIPES:
        labels = {"quota", "", "on demand", "spot", "pipeline", "total", "prices", "excluded"}
        assert set(labeled(name)) - {"memory"} == {*labels, "strategy", "missing"}


def test_plan_warns_of_memory_that_vertex_ai_takes(labeled):
    (line,) = labeled("digits", worker_count=1)["memory"]
    assert line == "9 GB of n1-standard-4 are free: Vertex AI's agents use up to 40% of its 15 GB"
    assert "memory" not in labeled("digits", chief_machine_type="n1-standard-8")


def test_plan_names_the_addresses_that_peered_jobs_need(labeled, monkeypatch):
    assert "network" not in labeled("digits-search")
    monkeypatch.setenv("VERTEX_NETWORK", "projects/1/global/networks/n")
    (line,) = labeled("digits-search")["network"]
    assert line.startswith("4 jobs of up to 2 replicas at once: a reserved range of /18 or lar")
    assert line.endswith("while they run, no training in the region runs on another network")
    (line,) = labeled("digits", worker_count=63)["network"]
    assert "1 job of up to 64 replicas at once: more than a /16 provides" in line


@pytest.mark.parametrize(
    ("jobs", "replicas", "reserved"),
    [(15, 8, "/18"), (16, 8, "/17"), (31, 8, "/17"), (63, 8, "/16"), (64, 8, ""), (15, 9, "/17")],
)
def test_reserved_range_is_that_of_the_page(jobs, replicas, reserved):
    assert find_reserved_range(jobs, replicas) == reserved


def test_plan_misses_an_image_that_serves_registered_models(labeled, monkeypatch):
    def missed(**settings):
        return "serving_image" in labeled("digits", **settings)["missing"][0]

    assert missed()
    assert not missed(model_name="")
    assert not missed(register="false")
    monkeypatch.setenv("VERTEX_SERVING_IMAGE", "us-central1-docker.pkg.dev/p/images/serving:1")
    assert not missed()


@pytest.mark.usefixtures("elsewhere")
def test_plan_says_last_what_is_missing(succeed, own_recipe, monkeypatch):
    monkeypatch.delenv("VERTEX_GPU_IMAGE", raising=False)
    names = "project, pipeline_root, image, serving_image"
    settings = f"for a run on Vertex AI, set {names} in vertex.toml"
    gpus = "accelerator_type='NVIDIA_TESLA_V100' needs an image for GPUs, which `make push TARGET="
    *shown, first, second = succeed("plan cats_vs_dogs").splitlines()
    assert "2 x NVIDIA_TESLA_V100" in shown[1] and "on demand" in "".join(shown)
    assert first == f"missing   {settings}"
    assert second.startswith(f"missing   {gpus}gpu` builds; give --set gpu_image_uri=IMAGE, set")
    own_recipe('source = "digits"\n[step_machines]\nevaluation = {accelerator_type = "NVIDIA_L4"}')
    values = {"project": "my-project", "pipeline_root": "gs://bucket/runs", "serving_image": "a/b"}
    Path("vertex.toml").write_text("\n".join(f'{key} = "{values[key]}"' for key in values))
    succeed("compile mine --image image:1")
    missing = [line for line in succeed("plan mine").splitlines() if line.startswith("missing")]
    assert len(missing) == 1 and "'NVIDIA_L4' needs an image for GPUs" in missing[0]
    monkeypatch.setenv("VERTEX_GPU_IMAGE", "image:gpu")
    assert "missing" not in succeed("plan mine")


def test_own_rates_get_no_discount(labeled):
    rates = ["--rate", "n1-standard-8=1", "--rate", "NVIDIA_TESLA_V100=2"]
    machine = labeled("cats_vs_dogs", *rates)
    assert machine["on demand"] == machine["spot"][:1]
    assert machine["spot"][1].endswith("; rates of --rate get no discount")
    part = labeled("cats_vs_dogs", *rates[:2])
    assert part["on demand"] != part["spot"][:1]


def test_plan_warns_of_a_job_that_is_cut_off(labeled):
    pools = build_worker_pool_specs(recipe.load("cats_vs_dogs").parameters.machines)
    seconds = int(5 / price_table.load_table().hourly_price(pools) * 3600)
    (line,) = labeled("cats_vs_dogs", "--minutes", "90", max_cost=5)["cut off"]
    assert line.startswith(f"max_cost=5 ends the job after {duration(seconds)}, before the expe")
    assert line.endswith("raise it, or use cheaper machines")
    (line,) = labeled("digits", "--minutes", "10", timeout="300s")["cut off"]
    assert line.startswith("timeout=300s ends the job after 5 min")
    assert line.endswith("set it to 600s or more")
    assert "cut off" not in labeled("digits", "--minutes", "10", timeout="600s")


def test_own_price_of_the_job_replaces_an_unknown_one(labeled):
    unknown = {"chief_machine_type": "n4-standard-4", "boot_disk_type": "hyperdisk-balanced"}
    (line,) = labeled("digits", **unknown)["price"]
    assert "no price for hyperdisk-balanced" in line
    priced = labeled("digits", "--minutes", "10", **unknown, price_per_hour=12)
    assert priced["on demand"][0].startswith("12.00 USD an hour, 2.00 for the expected 10 min")
    assert "spot" not in priced
    assert priced["prices"] == ["from the parameter price_per_hour=12"]


def test_plan_names_unconfirmed_prices(plan):
    assert "the price of a2-highgpu-1g is unconfirmed: " in plan("digits", **A100)
    # One's own price is in no doubt; nor is one that a page shows.
    assert "unconfirmed" not in plan("digits", "--rate", "a2-highgpu-1g=4", **A100)
    shown = plan("digits")
    assert "unconfirmed" not in shown
    assert "40% off machines, the smallest discount seen; it changes daily" in shown


def test_flex_start_needs_preemptible_quota(plan):
    shown = plan("digits", **L4, scheduling_strategy="FLEX_START")
    assert f"2 of {METRIC}preemptible_nvidia_l4_gpus" in shown
    assert f"16 of {METRIC}preemptible_g2_cpus" in shown
    assert "the table has no prices of FLEX_START, which differ" in shown
    assert "preemptible" not in plan("digits", **L4)


@pytest.mark.parametrize(
    ("settings", "counted"),
    [
        ({}, ["nvidia_l4_gpus"]),
        # Training and evaluation follow each other: one is enough.
        (L4, ["nvidia_l4_gpus"]),
        (L4 | {"scheduling_strategy": "SPOT"}, ["nvidia_l4_gpus", "preemptible_nvidia_l4_gpus"]),
    ],
    ids=["cpu", "gpu", "spot"],
)
def test_evaluation_needs_quota_of_training(labeled, own_recipe, settings, counted):
    own_recipe('source = "digits"\nstep_machines.evaluation.accelerator_type = "NVIDIA_L4"\n')
    quota = [line.split() for line in labeled("mine", **settings)["quota"]]
    amounts = {name: amount for amount, _, name in quota if name.endswith("_gpus")}
    assert amounts == {METRIC + name: "1" for name in counted}


def test_search_needs_quota_and_a_step_beside_its_training(labeled):
    alone, searching = labeled("digits")["quota"], labeled("digits-search")
    # Two trials at once, the training with the recipe's values, and the step on an e2-standard-4.
    amounts = [int(line.split()[0]) for line in searching["quota"]]
    cpus, disks = (3 * int(line.split()[0]) for line in alone)
    assert amounts == [cpus + 4, disks]
    small = price_table.load_table().rates["e2-standard-4"]
    assert searching["step"][0].startswith(f"search, which waits for its trials: {small:.2f} USD")


def test_search_may_take_no_longer_than_a_task(labeled):
    assert "cut off" not in labeled("digits-search", timeout="100800s")  # six rounds of 28 hours
    (line,) = labeled("digits-search", timeout="100801s")["cut off"]
    assert line.startswith("timeout='100801s': the trials, in 6 rounds, may take 168 h, but the pi")
    assert "set timeout='100800s' or less, raise parallel, or lower trials" in line
    waiting = {**L4, "scheduling_strategy": "FLEX_START", "max_wait_duration": "90000s"}
    (line,) = labeled("digits-search", **waiting, timeout="10801s")["cut off"]
    assert "set timeout='10800s' or less" in line
    # It ends earlier with fewer trials, which max_cost may choose.
    assert "cut off" not in labeled("digits-search", timeout="302400s", max_cost=200)


def test_endpoint_and_batch_prediction_are_priced_by_the_hour(labeled, plan, refused):
    assert "endpoint" not in labeled("digits")
    (line,) = labeled("digits", deploy_champion="true")["endpoint"]
    assert line.startswith("1 x n1-standard-4: 0.22 USD an hour until --undeploy, for the champ")
    assert line.endswith("one more machine for a test: up to 3 of a project's 100 (a quota)")
    needed = labeled("digits", deploy_champion="true")["quota"]
    assert any(line.split() == ["12", "of", SERVING_CPUS] for line in needed)
    batch = ["digits", "--batch", "gs://bucket/*.jsonl"]
    shown = plan(*batch, replica_count=3)
    assert shown.startswith("batch     3 x n1-standard-4: 0.66 USD an hour until the job ends; its")
    shown = plan(*batch, "--rate", "n1-standard-4=1", replica_count=3)
    assert "3 x n1-standard-4: 3.00 USD an hour" in shown
    assert "step      predict, which waits for the job: 0.15 USD an hour for 4 CPUs" in shown
    assert "pipeline  0.03 USD a run\n" in shown
    assert "--minutes is for training" in refused("plan", *batch, "--minutes", "3")


def test_steps_machine_is_compiled_in_and_priced(labeled, own_recipe):
    own_recipe(
        'source = "digits"\n[step_machines]\nrecords = {cpus = 30, memory_gb = 100}\n'
        'evaluation = {accelerator_type = "NVIDIA_L4"}\n'
    )
    text = compilation.compile_yaml(recipe.load("mine"), "image:1", "image:gpu")
    executors = yaml.safe_load(text)["deploymentSpec"]["executors"]
    containers = {name: executor["container"] for name, executor in executors.items()}
    evaluation, records = containers["exec-evaluate-model"], containers["exec-create-tfrecords"]
    sized = {name for name, container in containers.items() if container.get("resources")}
    assert sized == {"exec-create-tfrecords", "exec-evaluate-model"}
    assert records["resources"]["resourceCpuLimit"] == "30"
    assert records["resources"]["resourceMemoryLimit"] == "100G"
    assert evaluation["resources"]["resourceCpuLimit"] == "4"
    accelerator = evaluation["resources"]["accelerator"]
    assert (accelerator["resourceType"], accelerator["resourceCount"]) == ("NVIDIA_L4", "1")
    assert evaluation["image"] == "image:gpu"
    assert containers["exec-register-model"]["image"] == records["image"] == "image:1"
    line, price = labeled("mine")["step"]
    rates = price_table.load_table().rates
    hour = f"{rates['e2-standard-32']:.2f}"
    assert line.startswith(f"records: {hour} USD an hour for 30 CPUs and 100 GB, as e2-")
    assert "e2-standard-32" in line
    assert price.startswith(
        f"evaluation: {rates['g2-standard-4']:.2f} USD an hour for 4 CPUs and 16 GB with "
        "1 x NVIDIA_L4, as g2-standard-4;"
    )


def test_step_that_waits_for_dataflow_has_a_small_machine(
    labeled, refused, own_recipe, monkeypatch
):
    own_recipe('source = "digits"\n')
    dataflow = {"records_engine": "dataflow"}
    (line,) = labeled("mine", **dataflow)["step"]
    small = price_table.load_table().rates["e2-standard-4"]
    assert line.startswith(f"records, which waits for Dataflow: {small:.2f} USD an hour for 4 CPUs")
    own_recipe('source = "digits"\n[step_machines]\nrecords = {cpus = 30, memory_gb = 100}\n')
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.setenv("VERTEX_PIPELINE_ROOT", "gs://bucket/runs")
    monkeypatch.setenv("VERTEX_IMAGE", f"image@sha256:{64 * '1'}")
    for name in ("plan", "run"):
        error = refused(f"{name} mine --set records_engine=dataflow")
        assert "records (30 CPUs, 100 GB), which would be billed while it waits for Data" in error


def test_plan_says_what_it_does_not_price(labeled, monkeypatch):
    unreachable = "http://127.0.0.1:9"
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_BIGQUERY", unreachable)
    shown = labeled("chicago_taxi", source="bigquery:my-project.taxi.trips")
    (line,) = shown["excluded"]
    assert line.startswith("BigQuery (what a query scans, or a whole table, in each run: it can't")
    (line,) = shown["source"]
    assert line.startswith("its price is unknown: no answer from 127.0.0.1:9 (Connection refused")
    assert shown["total"][0].endswith("if a run takes the expected time, without the source")
    (line,) = labeled("chicago_taxi", source="bigquery:SELECT 1")["source"]
    assert line.endswith("source=bigquery:SELECT ... has no project; set GOOGLE_CLOUD_PROJECT")
    shown = labeled("chicago_taxi", "--set=source=csv:gs://bucket/*.csv")
    assert "BigQuery" not in shown["excluded"][0] and "source" not in shown


def test_run_on_bigquery_costs_what_it_reads(labeled, monkeypatch):
    answers = {
        "GET /bigquery/v2/projects/public/datasets/taxi/tables/trips": {"numBytes": str(2**41)},
        "GET /bigquery/v2/projects/public/datasets/taxi/tables/recent": {"type": "VIEW"},
        "POST /bigquery/v2/projects/my-project/queries": {"totalBytesProcessed": str(2**39)},
    }
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")

    def read(*flags, **settings):
        shown = labeled("chicago_taxi", "--minutes=60", *flags, **settings)
        return shown["source"][0], *(float(shown[key][0].split()[0]) for key in PRICES)

    with JsonServer(lambda verb, path, *_: (200, answers[f"{verb} {path}"])) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_BIGQUERY", url)
        table, hour, run, total = read(source="bigquery:public.taxi.trips")
        assert table.startswith("2.20 USD a run, even if it has not changed: 2,199.0 GB at 1.1 USD")
        assert total == pytest.approx(hour + run + 2.2, abs=0.01)
        twice, *_ = read("--set", SPLIT_BY_TIME, source="bigquery:public.taxi.trips")
        assert twice.startswith("4.40 USD a run")
        query = {"source": "bigquery:SELECT * FROM public.taxi.trips"}
        assert read(**query)[0].startswith(
            "3.13 USD a run, even if it has not changed: 549.8 GB at"
        )
        assert read("--rate=bigquery-query=10", **query)[0].startswith("5.00 USD a run")
        (line, *_) = read(**query, query_gigabytes=500)
        assert "the query scans 549.8 GB, more than query_gigabytes=500; select fewer" in line
        view = {"source": "bigquery:public.taxi.recent"}
        assert "public.taxi.recent is a view; to read a view, give a query" in read(**view)[0]


def test_step_with_an_accelerator_is_priced_with_it():
    prices = price_table.load_table()
    hour = prices.rates["n1-standard-8"] + prices.rates["NVIDIA_TESLA_T4"]
    price, name = price_table.step_price(8, 30, "NVIDIA_TESLA_T4", prices)
    assert (float(price), name) == (pytest.approx(hour), "n1-standard-8")
    with pytest.raises(InputError, match="64 CPUs and 16 GB with NVIDIA_TESLA_T4"):
        price_table.step_price(64, 16, "NVIDIA_TESLA_T4", prices)
