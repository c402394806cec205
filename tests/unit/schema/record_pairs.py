"""The same record class and the same value, made with our module and with the official one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

from hypothesis import strategies as st


class Color(Enum):
    RED = 1
    GREEN = 2


class Size(Enum):
    small = "small"
    large = "large"


@dataclass(frozen=True)
class FieldSpec:
    """`kind` is the name of a field class, or "Record"; `inner` what an array, map, enum or record field holds."""

    kind: str
    inner: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordSpec:
    name: str
    fields: Mapping[str, FieldSpec]
    namespace: str | None = None
    sorted_fields: bool = False


class Maker:
    """Makes classes and values with one of the two modules; a spec's class is made once."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._classes: dict[int, Any] = {}

    def record_class(self, spec: RecordSpec) -> Any:
        if id(spec) not in self._classes:
            attributes: dict[str, Any] = {name: self._field(given) for name, given in spec.fields.items()}
            if spec.namespace is not None:
                attributes["_avro_namespace"] = spec.namespace
            if spec.sorted_fields:
                attributes["_sorted_fields"] = True
            self._classes[id(spec)] = type(self._module.Record)(spec.name, (self._module.Record,), attributes)
        return self._classes[id(spec)]

    def _field(self, spec: FieldSpec) -> Any:
        if spec.kind == "Record":
            return self.record_class(spec.inner)(**spec.options)
        make = getattr(self._module, spec.kind)
        if spec.kind in ("Array", "Map"):
            return make(self._field(spec.inner), **spec.options)
        return make(spec.inner, **spec.options) if spec.kind == "CustomEnum" else make(**spec.options)


FLOATS = st.floats(width=32, allow_nan=False)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "Null": st.none(),
    "Boolean": st.booleans(),
    "Integer": st.integers(-(2**31), 2**31 - 1),
    "Long": st.integers(-(2**63), 2**63 - 1),
    "Float": FLOATS | st.integers(-1000, 1000),
    "Double": st.floats() | st.integers(-1000, 1000),
    "String": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "Bytes": st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(str.encode),
}
NAMES = st.from_regex("[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda name: name not in {"default", "required", "required_default", "self", "type", "schema", "schema_info",
                              "python_type", "validate_type"}
)  # fmt: skip


def values(spec: FieldSpec) -> st.SearchStrategy[Any]:
    """What a field may be given, None where it may be absent; records as dicts."""
    found: st.SearchStrategy[Any]
    if spec.kind == "Array":
        found = st.lists(_items(spec.inner), max_size=3)
    elif spec.kind == "Map":
        found = st.dictionaries(SCALARS["String"], _items(spec.inner), max_size=3)
    elif spec.kind == "CustomEnum":
        found = st.sampled_from(list(spec.inner)) | st.sampled_from([member.name for member in spec.inner])
    elif spec.kind == "Record":
        found = record_values(spec.inner)
    else:
        found = SCALARS[spec.kind]
    may_be_none = not spec.options.get("required") and spec.kind != "Boolean"
    return st.none() | found if may_be_none else found


def _items(spec: FieldSpec) -> st.SearchStrategy[Any]:
    return values(FieldSpec(spec.kind, spec.inner, {"required": True}))


def record_values(spec: RecordSpec) -> st.SearchStrategy[dict[str, Any]]:
    required = {name: values(given) for name, given in spec.fields.items() if given.options.get("required")}
    optional = {name: values(given) for name, given in spec.fields.items() if not given.options.get("required")}
    return st.fixed_dictionaries(required, optional=optional)


@st.composite
def field_specs(draw: st.DrawFn, depth: int = 2, inside: bool = False) -> FieldSpec:
    kinds = list(SCALARS) + ([] if inside else ["CustomEnum"]) + (["Array", "Map", "Record"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    inner: Any = None
    if kind in ("Array", "Map"):
        inner = draw(field_specs(depth - 1, inside=True))
    elif kind == "CustomEnum":
        inner = draw(st.sampled_from([Color, Size]))
    elif kind == "Record":
        inner = draw(record_specs(depth - 1))
    options: dict[str, Any] = {} if inside else draw(_options(kind))
    spec = FieldSpec(kind, inner, options)
    if not inside and kind not in ("Record", "Null", "Array", "Map") and draw(st.booleans()):
        options["default"] = draw(values(FieldSpec(kind, inner, {"required": True})))
    if kind == "Bytes" and options.get("required_default"):
        options.pop("default", None)  # bytes have no place in a definition, officially neither
    return spec


def _options(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={"required": st.booleans(), "required_default": st.booleans()})


@st.composite
def record_specs(draw: st.DrawFn, depth: int = 2) -> RecordSpec:
    return RecordSpec(
        "R" + draw(st.text("abcdefghij", min_size=6, max_size=6)),
        draw(st.dictionaries(NAMES, field_specs(depth), max_size=4)),
        draw(st.none() | st.sampled_from(["org.example", "a"])),
        draw(st.booleans()),
    )
