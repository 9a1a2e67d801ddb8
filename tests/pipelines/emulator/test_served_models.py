"""Deployed models answer, each by a process of its own that ends with its deployment."""

import contextlib
import os

import numpy as np
import psutil
import pytest
import tensorflow as tf
from google.api_core import exceptions

from tests.pipelines.emulator.idle_services import MODEL, Services, changed
from tests.trainer.serving.serving_processes import b64, png

PIXELS = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)


def predict(services, name, *instances):
    return services.prediction.predict(endpoint=name, instances=[*instances], retry=None)


def servers():
    """The processes that serve models, below this one."""
    commands = {process: process.cmdline() for process in psutil.Process().children(recursive=True)}
    return [process for process, command in commands.items() if "trainer.serving" in command]


@pytest.fixture
def serving(tmp_path):
    """Services whose deployed models answer; their servers end with them."""
    with contextlib.ExitStack() as stack:
        yield Services(tmp_path, stack, serves=True)
        left = servers()
    assert not any(server.is_running() for server in left)


def deploy(services, name, uri, deployed_id, split):
    version = [{"name": "MODEL_VERSION", "value": f"v{deployed_id}"}]
    model = changed(MODEL, container_spec__env=version, artifact_uri=uri)
    services.deploy(name, split, model, id=deployed_id).result(timeout=120)


def undeploy(services, name, deployed_id):
    request = {"endpoint": name, "deployed_model_id": deployed_id, "traffic_split": {}}
    services.endpoint.undeploy_model(request).result()


@pytest.mark.slow
def test_deployed_model_answers_until_it_is_undeployed(serving, untrained_model):
    name = serving.create("endpoint").result().name
    with pytest.raises(exceptions.BadRequest, match="has no model with traffic"):
        predict(serving, name, PIXELS.tolist())
    deploy(serving, name, untrained_model, "1", {"0": 100})
    answer = predict(serving, name, PIXELS.tolist())
    model = tf.saved_model.load(untrained_model)
    expected = model.signatures["serving_default"](image=PIXELS[None])["probabilities"]
    (prediction,) = answer.predictions
    assert np.abs(np.array(prediction["probabilities"]) - expected.numpy()[0]).max() < 1e-5
    assert (answer.deployed_model_id, prediction["model_version"]) == ("1", "v1")
    assert answer.model_display_name == MODEL["display_name"]
    with pytest.raises(exceptions.BadRequest, match="is not a nested list of numbers"):
        predict(serving, name, [["far"]])
    # An answer repeats the instance's key, and is longer than the photo.
    photo = {**b64(png(PIXELS)), "key": 1300 * "k"}
    with pytest.raises(exceptions.BadRequest, match=r"the response has 16.* bytes"):
        predict(serving, name, *[photo] * 1024)
    serving.update_endpoint(name, traffic_split={})
    undeploy(serving, name, "1")
    assert not servers()


@pytest.mark.slow
def test_deployed_models_share_traffic_and_restart(serving, untrained_model):
    name = serving.create("endpoint").result().name
    deploy(serving, name, untrained_model, "1", {"0": 100})
    assert predict(serving, name, PIXELS.tolist()).deployed_model_id == "1"
    # A server that was killed is started again, as a container is.
    (server,) = servers()
    server.kill()
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    deploy(serving, name, untrained_model, "3", {})
    for _ in range(5):
        assert predict(serving, name, PIXELS.tolist()).deployed_model_id == "1"
    assert len(servers()) == 2
    undeploy(serving, name, "3")
    assert len(servers()) == 1
