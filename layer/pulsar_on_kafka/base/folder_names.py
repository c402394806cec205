"""The folders of a checkout (`layer`, `mapping`, `schema_compat`, `spark_connector`) are other names of what an
installation has in `pulsar_on_kafka`. Each module is loaded once, whichever name an import uses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_PACKAGES: Final = {
    "layer": "pulsar_on_kafka",
    "mapping": "pulsar_on_kafka_mapping",
    "schema_compat": "pulsar_on_kafka_schema_compat",
    "spark_connector": "pulsar_on_kafka_spark",
}


def redirect(folder: str) -> None:
    """Have `folder`, which is being imported by its own name, be the package it stands for, with all of its modules."""
    if not any(isinstance(finder, _FolderNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FolderNames())
    sys.modules[folder] = importlib.import_module(_PACKAGES[folder])


class _FolderNames(MetaPathFinder, Loader):
    """Finds modules of folders that `redirect` was called for, in the packages they stand for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        folder, _, inner = fullname.partition(".")
        package = _PACKAGES.get(folder, "")
        if not (inner and package and sys.modules.get(folder) is sys.modules.get(package)):
            return None
        found = importlib.import_module(f"{package}.{inner}")
        return ModuleSpec(fullname, self, loader_state=(found, found.__spec__))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        found: ModuleType = spec.loader_state[0]
        return found

    def exec_module(self, module: ModuleType) -> None:
        """It was executed under its own name; what the import system has told it of another one is taken back."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state[1]
