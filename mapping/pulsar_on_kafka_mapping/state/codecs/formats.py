"""A format number stands in front of every value of a state topic: the first byte, or the member `v` of JSON.

Within a format, fields are added (JSON: a reader ignores those that it does not know, at every depth) and never change
their meaning. A change that a reader must not ignore needs a new format: the reader stops (`NewerFormat`), instead of
acting on half of the content. A value of an unknown or no longer supported format is corrupt.
"""

from __future__ import annotations

from pulsar_on_kafka_mapping.errors import CorruptRecord, NewerFormat


def expect_format(found: int, known: int, what: str) -> None:
    """Raises NewerFormat above `known`, CorruptRecord below; `what` it is called in errors."""
    if found > known:
        raise NewerFormat(f"{what} has format {found}, this version reads {known}: a newer one is needed")
    if found != known:
        raise CorruptRecord(f"{what} has format {found}, this version reads {known}")
