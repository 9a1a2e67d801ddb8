"""Names of trainer.data.records, for vertex_emulator until it no longer imports trainer."""

from trainer.data.records import DamagedFileError, read_record

__all__ = ["DamagedFileError", "read_record"]
