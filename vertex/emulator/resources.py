"""The base of services: create, get, list, update and delete for the resources of one kind."""

import contextlib
import dataclasses
import hashlib
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from vertex.emulator import field_rules, messages, proto_rules
from vertex.emulator.api_error import ApiError, not_found
from vertex.emulator.clock import Clock
from vertex.emulator.field_rules import refuse
from vertex.emulator.list_filters import Fields, parse_filter, parse_order
from vertex.emulator.messages import id_of, parent_of, to_snake_case
from vertex.emulator.operations import Operations
from vertex.emulator.resource_store import FolderStore, MemoryStore, warn

_SORTED = ("PipelineJob", "Schedule")
"""Kinds that are listed from latest to earliest."""


@dataclasses.dataclass(eq=False)
class Resources:
    """A store of the resources of one kind that answers requests for them.

        class ScheduleService(Resources):
            kind = "Schedule"      # answers CreateSchedule, GetSchedule, ListSchedules and so on

    Subclasses override `check`, `begin`, `refresh`, `change` and `check_deletable` as needed.
    """

    operations: Operations
    # Keeps the resources after this process, and shares them with others; None: keeps them in
    # memory only.
    folder: pathlib.Path | None = None
    clock: Clock = dataclasses.field(default_factory=Clock)

    kind = ""  # name of the message type
    updatable: ClassVar[tuple[str, ...]] = ()  # in an update; empty: fields that users may set
    page_size = 100
    unlisted = ""  # field that lists leave out
    # Fields by which lists are filtered and sorted, and which the messages lack.
    filtered: ClassVar[Fields] = {}

    def __post_init__(self) -> None:
        self.collection = f"{self.kind[0].lower()}{self.kind[1:]}s"
        self.stored: Any = MemoryStore()  # the resources by name
        if self.folder:
            self.stored = FolderStore(
                self.folder, self.collection, self.parse, self.dump, self.name_of
            )
        self._field = to_snake_case(self.kind)
        # The handlers of the API's standard methods; any other method has a name of its own.
        self.standard_methods = {
            f"Create{self.kind}": self.create,
            f"Get{self.kind}": self.get,
            f"List{self.kind}s": self.list_page,
            f"Update{self.kind}": self.update,
            f"Delete{self.kind}": self.delete,
        }

    def create(self, request: Any) -> Any:
        resource = self.read_new(request)
        with self.stored.lock():
            self.check(resource, request.parent)
            resource.name = self.new_name(request, resource)
            resource.create_time = self.clock.now()
            self.begin(resource)
            self.store(resource)
        return resource

    def get(self, request: Any) -> Any:
        return self.find(request.name)

    def list_page(self, request: Any) -> Any:
        prefix = f"{request.parent}/"
        listed = [resource for resource in self.list_all() if resource.name.startswith(prefix)]
        page = self.build_page(listed, request, self.kind, f"{self._field}s")
        for resource in getattr(page._pb, f"{self._field}s") if self.unlisted else ():
            resource.ClearField(self.unlisted)
        return page

    def update(self, request: Any) -> Any:
        """Update the fields that the mask names."""
        proto_rules.check_required(request)
        new = getattr(request, self._field)
        with self.changing(new.name) as present:
            mask = proto_rules.check_update(request, new, present, self.updatable)
            changed = type(present)(present)
            mask.MergeMessage(new._pb, changed._pb, True, True)
            proto_rules.check_required(changed, f"{self._field}.")
            self.check(changed, parent_of(new.name))
            self.change(request, present, changed)
            present._pb.CopyFrom(changed._pb)
        return self.find(new.name)

    def delete(self, request: Any) -> Any:
        with self.stored.lock():
            self.check_deletable(self.find(request.name))
            del self.stored[request.name]
        return self.operations.start(request.name)

    def find(self, name: str) -> Any:
        """Return a resource; raise ApiError if it does not exist."""
        try:
            return self.refresh(self.stored[name])
        except KeyError:
            raise not_found(name) from None

    def list_all(self) -> list[Any]:
        """Return all resources, without those whose files are damaged."""
        found = []
        for name in self.stored:
            try:
                found.append(self.find(name))
            except ApiError as error:
                if error.status != "NOT_FOUND":  # Another process has deleted it in the meantime.
                    warn(str(error))
        return found

    def store(self, resource: Any) -> None:
        resource.update_time = self.clock.now()
        self.stored[resource.name] = resource

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[Any]:
        """Yield a resource under the lock; store it on exit."""
        with self.stored.lock():
            resource = self.find(name)
            yield resource
            self.store(resource)

    def build_page(self, resources: Iterable[Any], request: Any, kind: str, field: str) -> Any:
        """Return the page of a list that a request asks for, with the token of the next page."""
        predicate = parse_filter(request.filter, self.filtered)
        order = getattr(request, "order_by", "") or ("create_time desc" if kind in _SORTED else "")
        sort = parse_order(order, self.filtered)
        # A list may be empty, but unknown fields are refused.
        example = getattr(messages, self.kind)()
        predicate(example)
        sort([example])
        matching = sort(filter(predicate, resources))
        token, size = request.page_token or "0", request.page_size
        valid_token = re.fullmatch("[0-9]{1,9}", token)
        refuse(not valid_token, f"page_token {token!r} was not returned by a list")
        refuse(size < 0, f"page_size is {size}; it must not be negative")
        start, size = int(token), min(size or self.page_size, self.page_size)
        rest = str(start + size) if start + size < len(matching) else ""
        part = matching[start : start + size]
        if hasattr(request, "read_mask"):
            part = [apply_mask(resource, request.read_mask) for resource in part]
        response = getattr(messages, f"List{kind}sResponse")
        return response(**{field: part, "next_page_token": rest})

    def read_new(self, request: Any) -> Any:
        """Return the resource that a request is to create."""
        proto_rules.check_required(request)
        resource = getattr(messages, self.kind)(getattr(request, self._field))
        proto_rules.clear_output_only(resource)
        return resource

    def new_name(self, request: Any, resource: Any) -> str:
        """Return the name of a new resource; raise ApiError if its ID is malformed or taken."""
        field = f"{self._field}_id"
        if resource_id := getattr(request, field, ""):
            field_rules.check_id(field, resource_id)
        name = f"{request.parent}/{self.collection}/{resource_id or self.next_id(resource)}"
        if name in self.stored:
            raise ApiError("ALREADY_EXISTS", f"{name} already exists")
        return name

    def next_id(self, resource: Any) -> str:
        """Return the ID of a resource for which the request names none: an unused number."""
        return str(max(map(int, filter(str.isdigit, map(id_of, self.stored))), default=0) + 1)

    def parse(self, text: str) -> Any:
        return getattr(messages, self.kind).from_json(text)

    def dump(self, resource: Any) -> str:
        return str(type(resource).to_json(resource))

    def name_of(self, resource: Any) -> str:
        """Return the name of a stored resource."""
        return str(resource.name)

    def check(self, resource: Any, parent: str) -> None:
        """Raise ApiError if a resource breaks a rule; `parent` is projects/P/locations/L."""
        field_rules.check_common(resource, self._field, parent)

    def begin(self, resource: Any) -> None:
        """Complete a new resource before it is stored, and start its work."""

    def refresh(self, resource: Any) -> Any:
        """Return a resource in its present state."""
        return resource

    def change(self, request: Any, present: Any, changed: Any) -> None:
        """Raise ApiError to refuse an update, or complete the changed resource."""

    def check_deletable(self, resource: Any) -> None:
        """Raise ApiError if a resource can't be deleted in its present state."""


def set_etag(resource: Any) -> Any:
    """Return a resource with the digest of its content as its etag."""
    resource.etag = ""
    content = resource._pb.SerializeToString(deterministic=True)
    resource.etag = hashlib.sha256(content).hexdigest()[:16]
    return resource


def apply_mask(resource: Any, mask: Any) -> Any:
    """Return a copy of a resource with the fields of a read mask; with all if it is empty."""
    shown = type(resource)()
    if mask.paths:
        mask = proto_rules.check_mask("read_mask", mask, type(resource))
        mask.MergeMessage(resource._pb, shown._pb)
    else:
        shown._pb.CopyFrom(resource._pb)
    return shown
