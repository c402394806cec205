"""Each compatibility strategy lets producers change a topic's schema, or refuses it, decided by a real Pulsar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA: Final = "schema strategies"

STRATEGIES: Final = (
    "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE", "FULL_TRANSITIVE",
)  # fmt: skip

_TIME_LIMIT_S: Final = 120.0


def _record(*fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Event", "fields": list(fields), **more}


def _field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


_A: Final = _field("a", "string")
_COLOURS: Final = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
_MORE_COLOURS: Final = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]}

CHANGES: Final[Mapping[str, tuple[dict[str, Any], ...]]] = {
    "nothing": (_record(_A), _record(_A)),
    "a doc": (_record(_A), _record(_A, doc="a doc")),
    "one field more with a default": (_record(_A), _record(_A, _field("b", "int", default=0))),
    "one field more": (_record(_A), _record(_A, _field("b", "int"))),
    "one field less that had a default": (_record(_A, _field("b", "int", default=0)), _record(_A)),
    "one field less": (_record(_A, _field("b", "int")), _record(_A)),
    "fields in another order": (_record(_A, _field("b", "int")), _record(_field("b", "int"), _A)),
    "int to long": (_record(_field("n", "int")), _record(_field("n", "long"))),
    "long to int": (_record(_field("n", "long")), _record(_field("n", "int"))),
    "float to double": (_record(_field("n", "float")), _record(_field("n", "double"))),
    "string to bytes": (_record(_A), _record(_field("a", "bytes"))),
    "int to string": (_record(_field("a", "int")), _record(_A)),
    "to a nullable one": (_record(_A), _record(_field("a", ["null", "string"], default=None))),
    "from a nullable one": (_record(_field("a", ["null", "string"], default=None)), _record(_A)),
    "one branch more": (_record(_field("a", ["null", "string"])), _record(_field("a", ["null", "string", "int"]))),
    "one symbol more": (_record(_field("c", _COLOURS)), _record(_field("c", _MORE_COLOURS))),
    "one symbol more, with a default": (
        _record(_field("c", {**_COLOURS, "default": "RED"})),
        _record(_field("c", {**_MORE_COLOURS, "default": "RED"})),
    ),
    "one symbol less": (_record(_field("c", _MORE_COLOURS)), _record(_field("c", _COLOURS))),
    "another name": (_record(_A), _record(_A, name="Other")),
    "another name with an alias": (_record(_A), _record(_A, name="Other", aliases=["Event"])),
    "another namespace": (_record(_A, namespace="one"), _record(_A, namespace="two")),
    "a field renamed with an alias": (_record(_A), _record(_field("b", "string", aliases=["a"]))),
    "items of an array": (
        _record(_field("l", {"type": "array", "items": "int"})),
        _record(_field("l", {"type": "array", "items": "long"})),
    ),
    "values of a map": (
        _record(_field("m", {"type": "map", "values": "string"})),
        _record(_field("m", {"type": "map", "values": "int"})),
    ),
    "away and back again": (_record(_A), _record(_A, _field("b", "int", default=0)), _record(_A)),
    "three times, each fits the one before": (
        _record(_A),
        _record(_A, _field("b", "int", default=0)),
        _record(_A, _field("b", "string", default="")),
    ),
    "a field that comes back as another type": (
        _record(_A, _field("b", "int", default=0)),
        _record(_A),
        _record(_A, _field("b", "string", default="")),
    ),
}


def _play_all(run: ScenarioRun, strategy: str, upload: Callable[[str, dict[str, Any]], Any]) -> None:
    namespace = run.namespace()
    run.admin.set_schema_compatibility_strategy(namespace, strategy)
    for number, (change, definitions) in enumerate(CHANGES.items()):
        topic = run.topic(f"t{number}", namespace=namespace)
        for turn, definition in enumerate(definitions):
            run.attempt(f"{change}, {turn}", lambda: upload(topic, definition))  # noqa: B023
        run.record(f"{change}: versions", [found["version"] for found in run.admin.schemas(topic)])


def _register(strategy: str) -> None:
    def avro(run: ScenarioRun) -> None:
        module = run.submodule("schema")
        _play_all(
            run, strategy, lambda topic, new: run.producer(topic, schema=module.AvroSchema(None, schema_definition=new))
        )

    def json_by_admin(run: ScenarioRun) -> None:
        _play_all(run, strategy, lambda topic, new: run.admin.upload_schema(topic, "JSON", json.dumps(new)))

    for kind, play in (("avro", avro), ("json", json_by_admin)):
        play.__name__ = f"{kind}_{strategy.lower()}"
        play.__qualname__ = play.__name__
        scenario(area=AREA, title=f"{kind.upper()}, {strategy}", time_limit_s=_TIME_LIMIT_S)(play)


for _strategy in STRATEGIES:
    _register(_strategy)
