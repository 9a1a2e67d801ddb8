"""The emulator reports errors as a status, over a connection that stays open."""

import http.client
import json
from urllib.parse import urlsplit

import grpc
import pytest
from google.api_core import exceptions
from google.cloud.aiplatform_v1 import ModelServiceClient, ScheduleServiceClient, types

from vertex.client.vertex_client import connect_service, local_credentials
from vertex.emulator.model_service import ModelService
from vertex.emulator.operations import Operations
from vertex.emulator.schedule_service import ScheduleService
from vertex.emulator.server import Emulator


class Broken:
    """A service with a defect."""

    routes = (("GET", "/v2/broken", "GetBroken"),)

    def get_model(self, request):
        raise ZeroDivisionError("not for clients")

    get_broken = get_model


def grpc_client(kind, emulator):
    credentials = local_credentials(emulator.environment)
    return connect_service(kind, emulator.endpoint, transport="grpc", credentials=credentials)


def test_unexpected_error_is_internal_and_logged(caplog):
    with Emulator(Broken()) as emulator:
        place = urlsplit(emulator.endpoint)
        connection = http.client.HTTPConnection(place.hostname, place.port)
        for path in ("/v1/projects/p/locations/l/models/m", "/v2/broken"):
            connection.request("GET", path, headers={"Authorization": f"Bearer {emulator.secret}"})
            # The next request uses the same connection.
            connection.auto_open = 0
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert (response.status, answer["error"]["status"]) == (500, "INTERNAL")
            assert "not for clients" not in answer["error"]["message"]
        connection.close()
        client = grpc_client(ModelServiceClient, emulator)
        with pytest.raises(exceptions.InternalServerError) as caught:
            client.get_model(name="projects/p/locations/l/models/m", retry=None)
        assert caught.value.grpc_status_code is grpc.StatusCode.INTERNAL
        assert "not for clients" not in str(caught.value)
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError] * 3


def test_values_that_json_lacks_are_refused_over_grpc():
    parent = "projects/p/locations/us-central1"
    with Emulator(ScheduleService(Operations(), pipelines=None)) as emulator:
        client = grpc_client(ScheduleServiceClient, emulator)
        late = types.CreateScheduleRequest(parent=parent, schedule={"display_name": "s"})
        late._pb.schedule.end_time.seconds = 10**13
        with pytest.raises(exceptions.InvalidArgument, match=r"end_time.* not valid"):
            client.create_schedule(late, retry=None)
        long = {"parent": parent, "filter": "é" * 3000}
        with pytest.raises(exceptions.InvalidArgument, match=r"filter 'é+ … "):
            client.list_schedules(long, retry=None)


def test_operation_is_polled_at_its_documented_path(services, monkeypatch):
    paths, answer = [], Emulator.answer

    def note(self, verb, url, *content):
        paths.append(url)
        return answer(self, verb, url, *content)

    name = services.create("endpoint").operation.name
    monkeypatch.setattr(Emulator, "answer", note)
    services.endpoint._client.transport.operations_client.get_operation(name)
    assert paths == [f"/v1/{name}"]


def test_task_gets_the_path_of_a_model_and_others_its_uri(tmp_path):
    models = ModelService(
        Operations(),
        tmp_path,
        uri=lambda path: path.replace("/buckets/", "gs://"),
        local=lambda uri: uri.replace("gs://", "/buckets/"),
    )
    parent = "projects/p/locations/us-central1"
    with Emulator(models) as emulator:

        def shown(environment):
            credentials = local_credentials(environment)
            client = connect_service(ModelServiceClient, emulator.endpoint, credentials=credentials)
            for uri in ("/buckets/b/1", "gs://b/2"):
                model = {"display_name": "m", "artifact_uri": uri}
                client.upload_model(parent=parent, model=model)
            return {model.artifact_uri for model in client.list_models(parent=parent)}

        assert shown(emulator.task_environment) == {"/buckets/b/1", "/buckets/b/2"}
        assert shown(emulator.environment) == {"gs://b/1", "gs://b/2"}
