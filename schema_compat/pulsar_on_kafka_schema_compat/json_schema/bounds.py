"""These rules compare greatest and least values (rules, section 5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pulsar_on_kafka_schema_compat.json_schema.document_model import Number
from pulsar_on_kafka_schema_compat.json_schema.fixed_point import Finding


def compare_bound(keyword: str, writer: Mapping[str, Number], reader: Mapping[str, Number]) -> Iterator[Finding]:
    """Why `reader` allows less than `writer` by `keyword`: `maxLength`, `minimum` ..."""
    new, old = reader.get(keyword), writer.get(keyword)
    if new is None:
        return
    least = "min" in keyword.lower()
    if old is None:
        change = "ADDED"
    elif new > old and least:
        change = "INCREASED"
    elif new < old and not least:
        change = "DECREASED"
    else:
        return
    rule = f"{screaming(keyword)}_{change}"
    yield Finding(f"/{keyword}", rule, f"the reader has {new}, the writer {'none' if old is None else old}")


def screaming(keyword: str) -> str:
    """`maxLength` as `MAX_LENGTH`."""
    return re.sub("(?=[A-Z])", "_", keyword).upper()
