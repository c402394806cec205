"""Reference pages: the public names of the package, with their docstrings by mkdocstrings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Final

MODULES: Final = {
    "pulsar_on_kafka": "Client",
    "pulsar_on_kafka.exceptions": "Exceptions",
    "pulsar_on_kafka.asyncio": "asyncio",
    "pulsar_on_kafka.schema": "Schemas",
    "pulsar_on_kafka.functions": "Functions",
    "pulsar_on_kafka.admin": "Administration",
    "pulsar_on_kafka.testing": "Testing",
    "pulsar_on_kafka_spark": "Spark",
    "pulsar_on_kafka_schema_compat": "Schema compatibility",
}
"""Titles of the pages, by the modules that programs import."""


_FIRST: Final = ("Client", "Producer", "Consumer", "Reader", "TableView", "Message", "MessageId", "Transaction")
_FIRST_OF: Final = {"pulsar_on_kafka.admin": ("AdminClient",), "pulsar_on_kafka.schema": ("Schema", "Record")}
"""Names at the top of a page; the others follow in the order of the alphabet."""


def reference_pages() -> Iterator[tuple[str, str]]:
    """The Markdown file of each page, relative to `docs/`, and its text."""
    exceptions = set(_names("pulsar_on_kafka.exceptions"))
    for module, title in MODULES.items():
        names = [name for name in _names(module) if module.endswith(".exceptions") or name not in exceptions]
        first = _FIRST_OF.get(module, _FIRST)
        names.sort(key=lambda name: (first.index(name) if name in first else len(first), name))
        blocks = [f"::: {module}.{name}\n" for name in names]
        yield f"reference/{module}.md", "\n".join([f"# {title}: `{module}`\n", *blocks])


def _names(module: str) -> list[str]:
    found = importlib.import_module(module)
    named = getattr(found, "__all__", None)
    if named is not None:
        return sorted(name for name in named if not inspect.ismodule(getattr(found, name)))
    return sorted(name for name, each in vars(found).items() if not name.startswith("_") and _module_of(each) == module)


def _module_of(value: object) -> str | None:
    module = getattr(value, "__module__", None)
    return module if isinstance(module, str) else None
