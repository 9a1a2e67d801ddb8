"""The emulator with faults, which notes what it is asked."""

from pipelines.emulator.api_error import ApiError
from pipelines.emulator.server import Emulator

NUMBER = "123456"


class FaultyEmulator(Emulator):
    """Names resources by the project's number; records requests; answers some wrongly.

    Attributes:
        requests: (name, request) of each, in order.
    """

    def __init__(self, *resources, project_number=NUMBER):
        super().__init__(*resources, project_number=project_number)
        self.requests = []
        self._faults, self._before = [], {}

    @property
    def url(self):
        return self.endpoint

    def fail(self, name, code, status, message="", times=1):
        """Answers the next requests of a name with an error."""
        self._faults += [(name, ApiError(status, message or status, code), False)] * times

    def drop(self, name, times=1, after=False):
        """Closes the connection of the next requests; with `after`, once they had their effect."""
        self._faults += [(name, ConnectionAbortedError(), after)] * times

    def before(self, name, act):
        """Has `act` done once, before the next request of a name."""
        self._before[name] = act

    def names(self):
        return [name for name, _ in self.requests]

    def sent(self, name):
        return [request for other, request in self.requests if other == name]

    def call(self, name, function, request):
        self._before.pop(name, lambda: None)()
        fault = next((one for one in self._faults if one[0] == name), None)
        if fault:
            self._faults.remove(fault)
        self.requests.append((name, _copy(request)))
        if fault and not fault[2]:
            raise fault[1]
        result = super().call(name, function, request)
        if fault:
            raise fault[1]
        return result


def _copy(request):
    return type(request)(request) if hasattr(request, "_pb") else request
