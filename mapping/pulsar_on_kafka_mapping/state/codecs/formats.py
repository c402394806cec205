"""A format number stands in front of every value of a state topic: the first byte, or the member `v` of JSON.

Within a format, fields are added (JSON: a reader ignores those that it does not know, at every depth) and never change
their meaning. What a reader must not ignore is a new format: it stops (`NewerFormat`), instead of acting on half of
what was said. Of a format that was never written, or that is not read any more, the value is corrupt.
"""

from __future__ import annotations

from pulsar_on_kafka_mapping.errors import CorruptRecord, NewerFormat


def expect_format(found: int, known: int, what: str) -> None:
    """Raises NewerFormat above `known`, CorruptRecord below; `what` it is called in errors."""
    if found > known:
        raise NewerFormat(f"{what} has format {found}, this version reads {known}: a newer one is needed")
    if found != known:
        raise CorruptRecord(f"{what} has format {found}, this version reads {known}")
