"""The emulator refuses training jobs, models and contexts that a page says Vertex AI refuses."""

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT, PROJECT, STORE, changed

NETWORK = f"{PROJECT}/global/networks/default"
KEY = f"{PROJECT}/locations/europe-west4/keyRings/ring/cryptoKeys/key"
ACCOUNT = "runner@my-project.iam.gserviceaccount.com"
LONG = "x" * 129
POOL = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "disk_spec": {"boot_disk_type": "pd-ssd"},
    "container_spec": {"image_uri": "image", "command": ["false"]},
}
L4 = {"machine_type": "g2-standard-4", "accelerator_type": "NVIDIA_L4", "accelerator_count": 1}
T4 = {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1}
H200 = {
    "machine_type": "a3-ultragpu-8g",
    "accelerator_type": "NVIDIA_H200_141GB",
    "accelerator_count": 8,
}
JOB = {"display_name": "train", "job_spec": {"worker_pool_specs": [POOL]}}
MODEL = {"display_name": "digits", "artifact_uri": "gs://bucket/model"}


def pools(*given, **scheduling):
    """A CustomJob with other pools."""
    return changed(JOB, job_spec__worker_pool_specs=[*given], job_spec__scheduling=scheduling)


def machine(**fields):
    return pools({**POOL, "machine_spec": {**POOL["machine_spec"], **fields}})


def environment(*variables):
    return pools(changed(POOL, container_spec__env=[*variables]))


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (changed(JOB, display_name=""), "display_name is required"),
        (changed(JOB, display_name=LONG), "custom_job.display_name has more than 128"),
        (changed(JOB, labels={"k": "V"}), "'V' is not a label"),
        (changed(JOB, job_spec__network="default"), "network='default' is not"),
        (changed(JOB, encryption_spec__kms_key_name=KEY), "in europe-west4"),
        (changed(JOB, job_spec__service_account="runner"), "service_account='runner' is not"),
        (
            changed(
                JOB,
                job_spec__tensorboard=f"{PARENT}/tensorboards/1",
                job_spec__base_output_directory__output_uri_prefix="gs://bucket/job",
            ),
            "needs a service_account",
        ),
        (
            changed(
                JOB,
                job_spec__tensorboard=f"{PARENT}/tensorboards/1",
                job_spec__service_account=ACCOUNT,
            ),
            "base_output_directory is required",
        ),
        (
            changed(JOB, job_spec__tensorboard=f"{PROJECT}/locations/us-east1/tensorboards/1"),
            "in us-east1, but the run is in us-central1",
        ),
        (pools(changed(POOL, replica_count=2)), r"\[0\].replica_count is 2.*exactly 1 replica"),
        (pools(*[POOL] * 5), "has 5 pools; at most 4"),
        (pools(), "worker_pool_specs is required"),
        (machine(machine_type=""), r"\[0\].machine_spec.machine_type is required"),
        (machine(accelerator_type="NVIDIA_TESLA_T4"), "T4 and accelerator_count 0; it must have"),
        (machine(accelerator_count=1), "and accelerator_count 1; it must have both or neither"),
        (machine(accelerator_count=-1), "accelerator_count -1; it must have both or neither"),
        (
            machine(machine_type="n1-standard-2"),
            "machine_spec.machine_type='n1-standard-2' is not a machine type of training",
        ),
        (
            machine(machine_type="n1-standard-32", **T4),
            "'n1-standard-32' can't have 1 x NVIDIA_TESLA_T4",
        ),
        (pools(changed(POOL, container_spec__image_uri="")), "image_uri is required"),
        (environment({"name": "1st", "value": "x"}), "invalid name '1st'"),
        (environment(*[{"name": "A", "value": "x"}] * 2), "'A' more than once"),
        (environment(*({"name": f"V{n}", "value": ""} for n in range(101))), "101; at most 100"),
        (pools(changed(POOL, disk_spec__boot_disk_type="pd-fast")), "boot_disk_type='pd-fast'"),
        (pools(changed(POOL, disk_spec__boot_disk_size_gb=64_001)), "must be 100 to 64000"),
        (
            machine(machine_type="n4-standard-4"),
            "boot_disk_type='pd-ssd' is not available on n4-standard-4",
        ),
        (pools(POOL, strategy="FLEX_START"), "FLEX_START provides machines with .*NVIDIA_L4"),
        (
            pools(
                {**POOL, "machine_spec": L4},
                {**POOL, "machine_spec": {**L4, "machine_type": "g2-standard-8"}},
                strategy="FLEX_START",
            ),
            "the same machines to every pool",
        ),
        (
            pools({**POOL, "machine_spec": L4}, strategy="FLEX_START", timeout="604801s"),
            "timeout is more than 7 days",
        ),
        (
            changed(
                pools(
                    changed(
                        {**POOL, "machine_spec": H200},
                        disk_spec__boot_disk_type="hyperdisk-balanced",
                    )
                ),
                job_spec__network=NETWORK,
            ),
            "can't be peered with machines that have NVIDIA_H200_141GB",
        ),
    ],
)
def test_a_training_job_that_a_page_rules_out_is_refused(services, job, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create_job(job)


def test_a_model_or_version_that_a_page_rules_out_is_refused(services):
    for fields, reason in (
        ({"display_name": ""}, "display_name is required"),
        ({"display_name": LONG}, "model.display_name has more than 128"),
        ({"labels": {"A": ""}}, "'A' is not a label"),
        ({"encryption_spec__kms_key_name": KEY}, "in europe-west4"),
    ):
        with pytest.raises(exceptions.BadRequest, match=reason):
            services.upload(changed(MODEL, **fields))
    for model_id in ("1digits", "-digits", "Digits", "d" * 64):
        with pytest.raises(exceptions.BadRequest, match="model_id"):
            services.upload(MODEL, model_id=model_id)
    name = services.upload(MODEL, model_id="digits").model
    with pytest.raises(exceptions.BadRequest, match="does not include the ID of a version"):
        services.model.merge_version_aliases(name=name, version_aliases=["golden"])
    with pytest.raises(exceptions.BadRequest, match="does not include the ID of a version"):
        services.model.delete_model_version(name=f"{name}@default")
    for alias in ("1", "Golden", "a", "golden_", "g" * 129):
        with pytest.raises(exceptions.BadRequest, match="is not an alias"):
            services.model.merge_version_aliases(name=f"{name}@1", version_aliases=[alias])


def test_a_parent_model_may_name_a_version(services):
    name = services.upload(MODEL, model_id="digits").model
    assert services.upload(MODEL, parent_model=f"{name}@1").model == name
    assert [one.name for one in services.model.list_models(parent=PARENT)] == [name]


def test_a_version_that_an_endpoint_serves_is_not_deleted(services):
    name = services.upload(MODEL, model_id="digits").model
    services.upload(MODEL, parent_model=name)
    endpoint = services.endpoint.create_endpoint(parent=PARENT, endpoint={"display_name": "e"})
    machine = {"machine_spec": {"machine_type": "n1-standard-4"}, "min_replica_count": 1}
    deployed = {"model": f"{name}@2", "dedicated_resources": machine}
    services.endpoint.deploy_model(endpoint=endpoint.result().name, deployed_model=deployed)
    with pytest.raises(exceptions.BadRequest, match="is deployed to an endpoint"):
        services.model.delete_model_version(name=f"{name}@2")
    with pytest.raises(exceptions.BadRequest, match="is deployed to an endpoint"):
        services.model.delete_model(name=name)


def test_a_run_is_in_an_experiment_once(services):
    experiment = services.create_context("digits").name
    children = {"context": experiment, "child_contexts": [f"{STORE}/contexts/one"] * 2}
    for _ in range(2):
        services.metadata.add_context_children(children)
    assert services.experiments == {experiment: [f"{STORE}/contexts/one"]}


def test_a_contexts_id_has_its_form_and_is_given_once(services):
    for context_id in ("abc", "a" * 129, "chicago_taxi", "Digits"):
        with pytest.raises(exceptions.BadRequest, match="context_id"):
            services.create_context(context_id)
    services.create_context("digits")
    with pytest.raises(exceptions.Conflict, match="digits already exists"):
        services.create_context("digits")
