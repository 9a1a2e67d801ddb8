"""The bytes that a run is billed for reading its source."""

from components.vertex.cloud_errors import CloudError, translated
from pipelines.project.connection import Connection
from pipelines.project.settings import Settings
from trainer.data.source import BilledBytes
from trainer.data.source_options import SourceOptions
from trainer.data.sources import parse_source
from trainer.errors import InputError
from vertex_facts import UsageError


def measure(options: SourceOptions, settings: Settings) -> BilledBytes | str:
    """Return what a run is billed for reading its source, or why that is unknown.

    Return an empty string if reading it is not billed.
    """
    kind, place = parse_source(options.source)
    if not kind.billed:
        return ""
    try:
        with translated("asking for its size"):
            call = Connection(settings).call_api
            return kind.measure(place, options, settings.project, call)
    except (CloudError, InputError, UsageError) as error:
        return str(error)
