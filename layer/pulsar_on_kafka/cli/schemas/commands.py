"""`pok schemas`: its commands, those that need no cluster and the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pulsar_on_kafka.cli.schemas import registry
from pulsar_on_kafka.cli.schemas.diff import diff
from pulsar_on_kafka.cli.schemas.offline import app
from pulsar_on_kafka.cli.shared.command import command

_VERBS: Final[Mapping[str, Callable[..., None]]] = {
    "get": registry.get,
    "list": registry.list_versions,
    "upload": registry.upload,
    "delete": registry.delete,
    "compatibility": registry.check_compatibility,
    "set-compatibility": registry.set_compatibility,
    "get-compatibility": registry.get_compatibility,
    "diff": diff,
}
for _name, _verb in _VERBS.items():
    command(app, _name)(_verb)
