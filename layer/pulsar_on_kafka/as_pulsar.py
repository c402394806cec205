"""Programs that say `import pulsar` run on Kafka without a changed line.

    import pulsar_on_kafka.as_pulsar  # before the first import of pulsar
    import pulsar

`pulsar`, its modules and `_pulsar` are this package's from then on, for the whole process. URLs of Pulsar clusters
stand for one Kafka cluster (`client.connection.pulsar_urls`). `pok run` does the same for a program and its child
processes.

Raises, where it is imported:
    ImportError: the official client is imported already.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

import pulsar_on_kafka
from pulsar_on_kafka.client.connection import pulsar_urls

_PACKAGE: Final = "pulsar"
_EXTENSION: Final = "_pulsar"
_MODULES: Final = frozenset(
    {
        "pulsar.asyncio",
        "pulsar.exceptions",
        "pulsar.functions",
        "pulsar.functions.context",
        "pulsar.functions.function",
        "pulsar.functions.serde",
        "pulsar.schema",
        "pulsar.schema.definition",
        "pulsar.schema.schema",
        "pulsar.schema.schema_avro",
        "pulsar.schema.schema_protobuf",
        "pulsar.tableview",
    }
)
"""Source: the modules of pulsar-client 3.13.0, without `__about__`."""
_STAND_INS: Final = Path(__file__).with_name("import_path")
"""The folder that `pok run` puts before the official client."""


class _Loader(Loader):
    """Gives a module of this package by its official name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Importlib returns what is in `sys.modules` after this. So the module's own `__name__` and `__spec__` stay."""
        sys.modules[module.__name__] = importlib.import_module(self._name)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raises ModuleNotFoundError for modules that pulsar-client does not have: otherwise this package's would be
        found, and loaded a second time."""
        if fullname == _EXTENSION:
            return ModuleSpec(fullname, _Loader(f"{pulsar_on_kafka.__name__}.{_EXTENSION}"))
        if not fullname.startswith(f"{_PACKAGE}."):
            return None
        if fullname not in _MODULES:
            raise ModuleNotFoundError(
                f"pulsar-client has no module {fullname!r}, or pulsar_on_kafka does not stand in for it", name=fullname
            )
        return ModuleSpec(fullname, _Loader(f"{pulsar_on_kafka.__name__}{fullname.removeprefix(_PACKAGE)}"))


def _is_official(name: str) -> bool:
    found = sys.modules.get(name)
    file = getattr(found, "__file__", None)
    return found is not None and not (file and Path(file).is_relative_to(_STAND_INS.parent))


def _install() -> None:
    for name in (_PACKAGE, _EXTENSION):
        if _is_official(name):
            raise ImportError(
                f"{name} is imported already, from {getattr(sys.modules[name], '__file__', None)}: import "
                "pulsar_on_kafka.as_pulsar before it, or start the program with pok run",
                name=name,
            )
    sys.meta_path.insert(0, _Finder())
    sys.modules[_PACKAGE] = pulsar_on_kafka
    sys.modules.pop(_EXTENSION, None)
    pulsar_urls.stand_for_kafka = True


_install()
