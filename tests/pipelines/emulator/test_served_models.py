"""Deployed models answer, each by a process of its own that ends with its deployment."""

import contextlib
import os

import numpy as np
import psutil
import pytest
import tensorflow as tf
from google.api_core import exceptions

from tests.pipelines.emulator.services import MODEL, Services, changed
from tests.trainer.serving.servers import b64, png

PIXELS = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)


def predict(services, name, *instances):
    return services.prediction.predict(endpoint=name, instances=[*instances], retry=None)


def servers():
    """The processes that serve models, below this one."""
    commands = {process: process.cmdline() for process in psutil.Process().children(recursive=True)}
    return [process for process, command in commands.items() if "trainer.serving" in command]


def test_deployed_models_share_traffic_and_restart(tmp_path, untrained_model):
    with contextlib.ExitStack() as stack:
        services = Services(tmp_path, stack, serves=True)
        name = services.create("endpoint").result().name

        def deploy(deployed_id, split):
            version = [{"name": "MODEL_VERSION", "value": f"v{deployed_id}"}]
            model = changed(MODEL, container_spec__env=version, artifact_uri=untrained_model)
            services.deploy(name, split, model, id=deployed_id).result(timeout=120)

        with pytest.raises(exceptions.BadRequest, match="has no model with traffic"):
            predict(services, name, PIXELS.tolist())
        deploy("1", {"0": 100})
        answer = predict(services, name, PIXELS.tolist())
        model = tf.saved_model.load(untrained_model)
        expected = model.signatures["serving_default"](image=PIXELS[None])["probabilities"]
        (prediction,) = answer.predictions
        assert np.abs(np.array(prediction["probabilities"]) - expected.numpy()[0]).max() < 1e-5
        assert (answer.deployed_model_id, prediction["model_version"]) == ("1", "v1")
        assert answer.model_display_name == MODEL["display_name"]
        with pytest.raises(exceptions.BadRequest, match="is not a nested list of numbers"):
            predict(services, name, [["far"]])
        # An answer repeats the instance's key, and is longer than the photo.
        photo = {**b64(png(PIXELS)), "key": 1300 * "k"}
        with pytest.raises(exceptions.BadRequest, match=r"the response has 16.* bytes"):
            predict(services, name, *[photo] * 1024)

        # A server that was killed is started again, as a container is.
        (server,) = servers()
        server.kill()
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        deploy("3", {})
        for _ in range(5):
            assert predict(services, name, PIXELS.tolist()).deployed_model_id == "1"
        assert len(servers()) == 2
        services.endpoint.undeploy_model(
            endpoint=name, deployed_model_id="3", traffic_split={}
        ).result()
        (server,) = servers()
    assert not server.is_running()
