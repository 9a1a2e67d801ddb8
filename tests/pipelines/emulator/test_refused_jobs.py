"""The emulator refuses the training jobs, models and contexts that Vertex AI refuses."""

import pytest
from google.api_core import exceptions

from components.planning.serving_container import PREBUILT
from tests.pipelines.emulator.idle_services import PARENT, POOL, PROJECT, STORE, changed
from tests.pipelines.local.conftest import wait_for

ACCOUNT = "runner@my-project.iam.gserviceaccount.com"
BOARD = f"{PARENT}/tensorboards/1"
NETWORK = f"{PROJECT}/global/networks/default"
FOLDER = {"output_uri_prefix": "gs://bucket/job"}


def spec(*pools, **fields):
    """Return the job_spec of a CustomJob."""
    return {"worker_pool_specs": [*pools], **fields}


def pool(**fields):
    return spec(changed(POOL, **fields))


def on(machine_type="n1-standard-4", accelerator_type=0, accelerator_count=0, **fields):
    """Return a pool on a machine."""
    accelerator = {"accelerator_type": accelerator_type, "accelerator_count": accelerator_count}
    return changed(POOL, machine_spec={"machine_type": machine_type, **accelerator}, **fields)


L4, LARGER_L4 = on("g2-standard-4", "NVIDIA_L4", 1), on("g2-standard-8", "NVIDIA_L4", 1)
H200 = on("a3-ultragpu-8g", "NVIDIA_H200_141GB", 8, disk_spec__boot_disk_type="hyperdisk-balanced")
FLEX_START = {"strategy": "FLEX_START"}
BOTH = "it must have both or neither"


def environment(*variables):
    return pool(container_spec__env=[{"name": name, "value": "x"} for name in variables])


@pytest.mark.parametrize(
    ("job_spec", "reason"),
    [
        (spec(POOL, network="default"), "network='default' is not"),
        (spec(POOL, persistent_resource_id="p"), "persistent_resource_id is not supported here"),
        (spec(POOL, service_account="runner"), "service_account='runner' is not"),
        (spec(POOL, tensorboard=BOARD, base_output_directory=FOLDER), "needs a service_account"),
        (spec(POOL, tensorboard=BOARD, service_account=ACCOUNT), "output_directory is required"),
        (spec(POOL, tensorboard=BOARD.replace("central", "east")), "in us-east1, but the run is"),
        (pool(replica_count=2), r"\[0\].replica_count is 2.*exactly 1 replica"),
        (spec(*[POOL] * 5), "has 5 pools; at most 4"),
        (spec(), "worker_pool_specs is required"),
        (spec(on("")), r"\[0\].machine_spec.machine_type is required"),
        (spec(on(accelerator_type="NVIDIA_TESLA_T4")), f"T4 and accelerator_count 0; {BOTH}"),
        (spec(on(accelerator_count=1)), f"and accelerator_count 1; {BOTH}"),
        (spec(on(accelerator_count=-1)), f"accelerator_count -1; {BOTH}"),
        (spec(on("n1-standard-2")), "='n1-standard-2' is not a machine type of training"),
        (spec(on("n1-standard-32", "NVIDIA_TESLA_T4", 1)), "can't have 1 x NVIDIA_TESLA_T4"),
        (pool(container_spec__image_uri=""), "image_uri is required"),
        (pool(container_spec__args=["a" * 50_000, "b" * 50_001]), "100001 characters; at most"),
        (environment("1st"), "invalid name '1st'"),
        (environment("A", "A"), "'A' more than once"),
        (environment(*(f"V{number}" for number in range(101))), "101; at most 100"),
        (pool(disk_spec__boot_disk_type="pd-fast"), "boot_disk_type='pd-fast'"),
        (pool(disk_spec__boot_disk_size_gb=64_001), "must be 100 to 64000"),
        (spec(on("n4-standard-4")), "boot_disk_type='pd-ssd' is not available on n4-standard-4"),
        (spec(POOL, scheduling=FLEX_START), "FLEX_START provides machines with .*NVIDIA_L4"),
        (spec(L4, LARGER_L4, scheduling=FLEX_START), "the same machines to every pool"),
        (spec(L4, scheduling={**FLEX_START, "timeout": "604801s"}), "timeout is more than 7 days"),
        (spec(POOL, scheduling={"max_wait_duration": "60s"}), "needs strategy FLEX_START, not STR"),
        (spec(POOL, scheduling={"strategy": "SPOT", "max_wait_duration": "0s"}), "START, not SPOT"),
        (spec(H200, network=NETWORK), "can't be peered with machines with NVIDIA_H200_141GB"),
    ],
)
def test_invalid_training_job_is_refused(services, job_spec, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create("custom_job", job_spec=job_spec)


def test_machine_that_the_region_lacks_is_refused(services):
    africa, tel_aviv = (f"{PROJECT}/locations/{region}" for region in ("africa-south1", "me-west1"))
    with pytest.raises(exceptions.BadRequest, match="T4' is not in africa"):
        job_spec = spec(on(accelerator_type="NVIDIA_TESLA_T4", accelerator_count=1))
        services.create("custom_job", parent=africa, job_spec=job_spec)
    with pytest.raises(exceptions.BadRequest, match="needs an accelerator in me-west1"):
        services.create("batch_prediction_job", parent=tel_aviv, model=f"{tel_aviv}/models/1")
    with pytest.raises(exceptions.BadRequest, match="needs an accelerator in me-west1"):
        services.deploy(services.create("endpoint", parent=tel_aviv).result().name, {})


def test_training_uses_one_network_at_a_time(services):
    other = NETWORK.replace("default", "other")
    waiting = changed(POOL, container_spec__command=["sleep", "60"])
    running = services.create("custom_job", job_spec=spec(waiting, network=NETWORK))
    spec_of_trials = {"trial_job_spec__network": other}
    for kind, fields in (
        ("custom_job", {"job_spec": spec(POOL, network=other)}),
        ("hyperparameter_tuning_job", spec_of_trials),
    ):
        with pytest.raises(exceptions.BadRequest, match=f"other: {running.name} still runs on"):
            services.create(kind, **fields)
    beside = [
        services.create("custom_job", job_spec=spec(POOL, network=network)).name
        for network in ("", NETWORK)
    ]
    elsewhere = PARENT.replace("us-central1", "europe-west4")
    services.create("custom_job", parent=elsewhere, job_spec=spec(POOL, network=other))
    services.job.cancel_custom_job(name=running.name)

    def have_ended():
        jobs = [services.job.get_custom_job(name=name) for name in (running.name, *beside)]
        return all(job.end_time for job in jobs)

    wait_for(have_ended)
    services.create("custom_job", job_spec=spec(POOL, network=other))


def test_invalid_alias_is_refused(services):
    name = services.upload(model_id="digits").model
    with pytest.raises(exceptions.BadRequest, match="does not include the ID of a version"):
        services.model.merge_version_aliases(name=name, version_aliases=["golden"])
    with pytest.raises(exceptions.BadRequest, match="does not include the ID of a version"):
        services.model.delete_model_version(name=f"{name}@default")
    with pytest.raises(exceptions.BadRequest, match="version_aliases is required"):
        services.model.merge_version_aliases(name=f"{name}@1", version_aliases=[])
    with pytest.raises(exceptions.BadRequest, match="model_evaluation is required"):
        services.model.import_model_evaluation(parent=f"{name}@1")
    for alias in ("1", "Golden", "goldEn", "a", "golden_", "golden-", "g" * 129):
        with pytest.raises(exceptions.BadRequest, match=f"'{alias}' is not an alias"):
            services.model.merge_version_aliases(name=f"{name}@1", version_aliases=[alias])


@pytest.mark.parametrize(
    ("container_spec", "reason"),
    [
        ({"image_uri": "us-docker.pkg.dev/p/r/i"}, "not in the Artifact Registry of us-central1"),
        ({"env": [{"name": "1st", "value": "x"}]}, "invalid name '1st'"),
        ({"ports": [{"container_port": 65536}]}, "container_port 65536 is not 1 to 65535"),
        ({"predict_route": "/p", "invoke_route_prefix": "/*"}, "both predict_route and invoke"),
        ({"deployment_timeout": "7201s"}, "deployment_timeout is more than 2 hours"),
    ],
)
def test_invalid_container_of_a_model_is_refused(services, container_spec, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create("model", container_spec={"image_uri": PREBUILT, **container_spec})


def test_label_of_google_is_refused(services):
    for key in ("vertex-ai-team", "goog-team"):
        with pytest.raises(exceptions.BadRequest, match=f"label '{key}' begins with"):
            services.create("model", labels={key: "vision"})


def test_model_without_a_container_predicts_nothing(services):
    bare = services.upload(model={"display_name": "bare"}).model
    with pytest.raises(exceptions.BadRequest, match="has no container_spec to serve it"):
        services.create("batch_prediction_job", model=bare)
    with pytest.raises(exceptions.BadRequest, match="has no container_spec to serve it"):
        services.deploy(services.create("endpoint").result().name, {}, {"display_name": "bare"})
    assert services.model.get_model(name=bare).supported_input_storage_formats == []
    served = services.model.get_model(name=services.upload().model)
    assert "file-list" in served.supported_input_storage_formats


def test_parent_model_may_name_a_version(services):
    name = services.upload(model_id="digits").model
    assert services.upload(parent_model=f"{name}@1").model == name
    assert [model.name for model in services.model.list_models(parent=PARENT)] == [name]
    versions = services.model.list_model_versions(name=name)
    assert [version.name for version in versions] == [f"{name}@1", f"{name}@2"]


def test_deployed_version_is_not_deleted(services):
    services.deploy(services.create("endpoint").result().name, {})
    (name,) = (model.name for model in services.model.list_models(parent=PARENT))
    services.upload(parent_model=name)
    for delete, request in (
        (services.model.delete_model_version, f"{name}@1"),
        (services.model.delete_model, name),
    ):
        with pytest.raises(exceptions.BadRequest, match="is deployed to an endpoint"):
            delete(name=request)


def test_run_joins_an_experiment_once(services):
    experiment = services.create_context("digits").name
    children = {"context": experiment, "child_contexts": [f"{STORE}/contexts/one"] * 2}
    for _ in range(2):
        services.metadata.add_context_children(children)
    assert services.experiments == {experiment: [f"{STORE}/contexts/one"]}
    assert services.metadata.get_context(name=experiment).display_name == "digits"


def test_context_above_another_is_no_child_of_it(services):
    first, second = (services.create_context(name).name for name in ("first", "second"))
    add = services.metadata.add_context_children
    add(context=first, child_contexts=[second])
    with pytest.raises(exceptions.BadRequest, match=r"first is above .*second"):
        add(context=second, child_contexts=[first])
    for _ in range(9):
        add(context=services.create_context("").name, child_contexts=[second])
    with pytest.raises(exceptions.BadRequest, match="second has 10 parents already"):
        add(context=services.create_context("last").name, child_contexts=[second])
