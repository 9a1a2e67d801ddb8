"""Changes of Vertex AI's endpoints that can be repeated.

The answer to a request may be lost after it took effect, and two commands may send the same
request. Each change therefore ends with what is there, not with what was sent.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from vertex.client.cloud_errors import (
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    Change,
    CloudError,
    describe,
    is_retryable,
    message_of,
    status_of,
    tolerated,
)
from vertex.client.vertex_client import Wait, finish

# Google documents minutes; pulling a large image takes longest.
_LONGEST_SECONDS = 3600.0
_APPEAR_SECONDS = 60.0
"""Time in which a server that lists no operations shows a change."""
_REFUSED = 400
_UNLISTED = (_REFUSED, FORBIDDEN, NOT_FOUND, 405, NOT_IMPLEMENTED)
"""Statuses with which a server answers that lists no operations, or not to this account."""


@dataclasses.dataclass(frozen=True)
class EndpointChanges:
    """Changes of a project's endpoints; methods raise the client's exceptions and CloudError."""

    client: Any  # a `Service` that wraps Vertex AI's EndpointServiceClient
    say: Callable[[str], None] = print  # called with a line a minute while an operation runs

    def find(self, name: str) -> Any:
        """Return an endpoint; None if there is none."""
        with tolerated(NOT_FOUND):
            return self.client.get_endpoint(name=name)
        return None

    def list_operations(self, name: str) -> list[Any] | None:
        """Return the operations of an endpoint; None if the server lists none."""
        from google.protobuf import json_format

        with contextlib.suppress(json_format.ParseError), tolerated(*_UNLISTED):
            return list(self.client.list_operations(name))
        return None

    def settle(
        self,
        name: str,
        what: str,
        is_done: Callable[[Any], bool] = lambda _: True,
        seconds: float = _LONGEST_SECONDS,
    ) -> Any:
        """Wait until no operation runs at an endpoint; return the endpoint.

        If the server lists no operations, wait until `is_done` is true for the endpoint.
        """
        wait = Wait(seconds, what, self.say)
        while True:
            operations = self.list_operations(name)
            endpoint = self.client.get_endpoint(name=name)
            running = not is_done(endpoint) if operations is None else _running(operations)
            if not running or not wait.pause():
                return endpoint

    def settle_others(self, name: str) -> Any:
        """Wait for operations that other commands have begun; return the endpoint."""
        return self.settle(name, f"waiting for an operation at the endpoint {id_of(name)}")

    def create(self, parent: str, endpoint: Any, endpoint_id: str) -> Any:
        """Create an endpoint, unless it exists; return it."""
        # The ID makes it safe to send the request again.
        with tolerated(CONFLICT):
            operation = self.client.create_endpoint(
                parent=parent, endpoint=endpoint, endpoint_id=endpoint_id, retry=self.client.retry
            )
            self._finish(operation, f"creates the endpoint {endpoint_id}")
        wait = Wait(_APPEAR_SECONDS, f"the endpoint {endpoint_id} is being created", self.say)
        while not (created := self.find(f"{parent}/endpoints/{endpoint_id}")):
            if not wait.pause():
                raise CloudError(f"the endpoint {endpoint_id} was not created; try again")
        return created

    def deploy(self, request: Any, version: str, change: Change) -> Any:
        """Deploy a version, or wait for its deployment that another request has begun.

        Return the endpoint, which then lists the version. `change` has begun once one may be.
        """
        name, number = request.endpoint, request.deployed_model.id
        before = self.list_operations(name) or ()
        ended = {operation.name for operation in before if operation.done}
        wait = Wait(_LONGEST_SECONDS, f"{version} is being deployed", self.say)
        running, stays = False, Wait(_APPEAR_SECONDS)
        while True:
            # Sent again only if nothing is under way: it conflicts with the version that it, or
            # another command, has deployed or is deploying.
            done = not running and self._start_deployment(request, version, wait, change)
            operations = self.list_operations(name) or []
            endpoint, running = self.client.get_endpoint(name=name), _running(operations)
            new = [operation for operation in operations if operation.name not in ended]
            if not _has(endpoint, number):
                stays = Wait(_APPEAR_SECONDS)
            # Without an operation that says so, a version that stays listed is deployed.
            elif done or (not running and (new or stays.is_over)):
                return endpoint
            if done:
                raise _failure(version, "it was undeployed in the meantime", endpoint)
            for operation in new:
                if operation.error.message and not running:
                    raise _failure(version, operation.error.message, endpoint)
            if not wait.pause():
                raise _failure(version, "it is not done after an hour", endpoint)

    def _start_deployment(self, request: Any, version: str, wait: Wait, change: Change) -> bool:
        """Deploy a version and return True, unless the request conflicts with another."""
        try:
            operation = self.client.deploy_model(request)
        except Exception as error:
            refused = status_of(error) == _REFUSED
            busy = refused and _running(self.list_operations(request.endpoint) or [])
            if status_of(error) != CONFLICT and not busy:
                raise
            change.begun = True
            return False
        change.begun = True
        try:
            return self._finish(operation, f"deploys {version}", wait)
        except Exception as error:
            endpoint = self.client.get_endpoint(name=request.endpoint)
            raise _failure(version, message_of(error), endpoint) from None

    def _finish(self, operation: Any, does: str, wait: Wait | None = None) -> bool:
        """Wait for the end of an operation and raise its error.

        Return False if it can't be read: then the endpoint shows how it ends.
        """
        try:
            finish(operation, self.client.retry, wait or Wait(_LONGEST_SECONDS))
        except Exception as error:
            if operation.operation.done:
                raise
            self.say(f"the operation that {does} can't be read: {describe(error)}")
            return False
        return True

    def shift_traffic(self, endpoint: Any, split: dict[str, int]) -> None:
        """Set the traffic of an endpoint, unless it has changed since it was read."""
        from google.cloud.aiplatform_v1 import types

        changed = types.Endpoint(name=endpoint.name, traffic_split=split, etag=endpoint.etag)

        def update() -> None:
            try:
                self.client.update_endpoint(
                    endpoint=changed, update_mask={"paths": ["traffic_split"]}, retry=None
                )
            except Exception as error:
                if not is_retryable(error) and status_of(error) not in (_REFUSED, CONFLICT):
                    raise
                present = self.client.get_endpoint(name=endpoint.name)
                if dict(present.traffic_split) == split:
                    return  # An earlier request, whose answer was lost, has set it.
                if present.etag != endpoint.etag:
                    where = describe_versions(present)
                    why = f"the endpoint was changed in the meantime: {where}; try again"
                    raise CloudError(why) from None
                raise

        if dict(endpoint.traffic_split) != split:
            self.client.retry(update)()

    def undeploy(self, endpoint: Any, number: str) -> None:
        """Undeploy a version, if it is deployed."""
        failure: Exception = CloudError(f"version {number} was not undeployed; try again")
        try:
            operation = self.client.undeploy_model(
                endpoint=endpoint.name, deployed_model_id=number, traffic_split={}
            )
            if self._finish(operation, f"undeploys version {number}"):
                return
        except Exception as error:
            if status_of(error) not in (_REFUSED, NOT_FOUND, CONFLICT):
                raise
            failure = error
        # An earlier request, whose answer was lost, may have begun or done it.
        present = self.settle(
            endpoint.name,
            f"version {number} is being undeployed",
            lambda endpoint: not _has(endpoint, number),
            _APPEAR_SECONDS,
        )
        if _has(present, number):
            raise failure

    def clear(self, name: str) -> bool:
        """Undeploy every version of an endpoint, also one that is being deployed.

        Return False if a deployment may be under way that the server does not show.
        """
        endpoint = self.settle_others(name)
        errors = []
        with Change() as change:
            self.shift_traffic(endpoint, {})
            for number in shares(endpoint):
                try:
                    self.undeploy(endpoint, number)
                    change.begun = True
                except Exception as error:  # The others are billed, too.
                    errors.append(error)
            if errors:
                raise errors[0]
            left = shares(self.settle_others(name))
            certain = self.list_operations(name) is not None
        if left:
            raise CloudError(f"version {', '.join(left)} was deployed in the meantime; try again")
        return certain

    def delete(self, name: str) -> None:
        """Delete an endpoint, if it exists, with its versions."""
        failure: Exception = CloudError(f"the endpoint {id_of(name)} was not deleted; try again")
        with tolerated(NOT_FOUND):
            self.clear(name)
        try:
            operation = self.client.delete_endpoint(name=name)
            if self._finish(operation, f"deletes the endpoint {id_of(name)}"):
                return
        except Exception as error:
            failure = error
        # An earlier request, whose answer was lost, may have deleted it.
        if self.find(name):
            raise failure


def shares(endpoint: Any) -> dict[str, int]:
    """Return the traffic in percent of each version at a types.Endpoint, last deployed first."""
    deployed = [(model.create_time, int(model.id), model.id) for model in endpoint.deployed_models]
    versions = [number for *_, number in sorted(deployed, reverse=True)]
    return {version: endpoint.traffic_split.get(version, 0) for version in versions}


def describe_versions(endpoint: Any) -> str:
    """Return a clause that says which versions an endpoint serves."""
    listed = [f"version {number} ({share}%)" for number, share in shares(endpoint).items()]
    return f"the endpoint {id_of(endpoint.name)} serves {', '.join(listed) or 'no version'}"


def id_of(name: str) -> str:
    """Return the last part of a resource's name."""
    return name.rpartition("/")[2]


def _has(endpoint: Any, number: str) -> bool:
    return any(model.id == number for model in endpoint.deployed_models)


def _running(operations: list[Any]) -> bool:
    return any(not operation.done for operation in operations)


def _failure(version: str, why: str, endpoint: Any) -> CloudError:
    where = describe_versions(endpoint)
    return CloudError(f"the deployment of {version} failed: {why.rstrip('.')}; {where}")
