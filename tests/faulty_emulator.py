"""The emulator with faults, which records its requests."""

import json
import re
from collections.abc import MutableMapping

from vertex.emulator.api_error import ApiError
from vertex.emulator.server import Emulator, HttpRequest

NUMBER = "123456"


class Dropped(BaseException):
    """Close the connection; not an Exception, which the emulator would answer."""


class FaultyEmulator(Emulator):
    """Name resources by the project's number, as Vertex AI does; record requests, fail some.

    Attributes:
        requests: (name, request) of each, in order.
    """

    def __init__(self, *resources, project_number=NUMBER):
        super().__init__(*resources)
        self._project_number = project_number
        self.requests = []
        self._faults, self._before = [], {}

    @property
    def url(self):
        return self.endpoint

    def fail(self, name, code, status, message="", times=1, after=False):
        """Answer the next requests of a name with an error; with `after`, once they took effect."""
        error = ApiError(status, message or status, code)
        self._faults += [(name, error, after)] * times

    def drop(self, name, times=1, after=False):
        """Close the connection of the next requests; with `after`, once they had their effect."""
        self._faults += [(name, Dropped(), after)] * times

    def pardon(self):
        """Answer the next requests without errors."""
        self._faults.clear()

    def before(self, name, act):
        """Call `act` once, before the next request of a name."""
        self._before[name] = act

    def noted(self, name, request):
        """Return what `requests` keeps of a request."""
        if isinstance(request, HttpRequest):
            return json.loads(request.body or b"{}")
        return type(request)(request) if hasattr(request, "_pb") else request

    def names(self):
        return [name for name, _ in self.requests]

    def sent(self, name):
        return [request for sent, request in self.requests if sent == name]

    def answer(self, *request):
        try:
            return super().answer(*request)
        except Dropped:
            raise ConnectionAbortedError from None

    def call(self, name, function, request):
        self._before.pop(name, lambda: None)()
        fault = next((fault for fault in self._faults if fault[0] == name), None)
        if fault:
            self._faults.remove(fault)
        self.requests.append((name, self.noted(name, request)))
        if fault and not fault[2]:
            raise fault[1]
        if self._project_number and not isinstance(request, HttpRequest):
            for field in ("name", "parent", "parent_model", "context", "endpoint"):
                value = getattr(request, field, None)
                if isinstance(value, str):
                    number = f"projects/{self._project_number}/"
                    setattr(request, field, re.sub("^projects/[^/]+/", number, value))
        result = super().call(name, function, request)
        if fault:
            raise fault[1]
        return result


class ById(MutableMapping):
    """The resources of a service by ID, those of one project and region."""

    def __init__(self, service):
        self._stored = service.stored
        self._parent = f"projects/{NUMBER}/locations/us-central1/{service.collection}/"

    def __getitem__(self, key):
        return self._stored[self._parent + key]

    def __setitem__(self, key, resource):
        self._stored[self._parent + key] = resource

    def __delitem__(self, key):
        del self._stored[self._parent + key]

    def __iter__(self):
        return iter([name.removeprefix(self._parent) for name in self._stored])

    def __len__(self):
        return len(self._stored)


class NoServers:
    """Servers of models that answer nothing; ready at once, unless a test says otherwise.

    Attributes:
        polls: number of answers before a server is ready.
        error: why servers then end instead.
    """

    polls, error = 0, ""

    def is_ready(self, *_):
        self.polls -= 1
        if self.polls < 0 and self.error:
            raise ApiError("FAILED_PRECONDITION", self.error)
        return self.polls < 0

    def start(self, *_):
        raise ApiError("INVALID_ARGUMENT", "this server runs no model servers")

    def stop(self, *_):
        return lambda: True


class OpenEmulator(FaultyEmulator):
    """An emulator for clients without a token, or with that of another server."""

    def _check_token(self, token):
        """Accept any token."""
