"""The input and the result of a check.

A *checker* knows one kind of schema. It is anything with the two methods of `PairChecker`; `strategies.py` calls it, in
the directions and for the versions of the strategy, and converts each `Difference` to an `Incompatibility`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

SCHEMA_UNREADABLE: Final = "SCHEMA_UNREADABLE"
SCHEMA_TYPE_CHANGED: Final = "SCHEMA_TYPE_CHANGED"
SCHEMA_TYPE_NOT_STORABLE: Final = "SCHEMA_TYPE_NOT_STORABLE"
STRATEGY_FORBIDS_CHANGE: Final = "STRATEGY_FORBIDS_CHANGE"
STRATEGY_UNDEFINED: Final = "STRATEGY_UNDEFINED"
DEFINITION_FORM_CHANGED: Final = "DEFINITION_FORM_CHANGED"
DEFINITION_ID_CHANGED: Final = "DEFINITION_ID_CHANGED"
KEY_SCHEMA_TYPE_CHANGED: Final = "KEY_SCHEMA_TYPE_CHANGED"
VALUE_SCHEMA_TYPE_CHANGED: Final = "VALUE_SCHEMA_TYPE_CHANGED"


_FIRST_ADDED: Final = 1000
"""Far above Pulsar's numbers."""


class SchemaType(enum.Enum):
    """Schemas are of these kinds, with their numbers in Pulsar's API."""

    AUTO_PUBLISH = -4
    AUTO_CONSUME = -3
    BYTES = -1
    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    EXTERNAL = 22
    """The definition is in a registry of the program's own. It follows any other EXTERNAL schema, and no other type.
    Source: Pulsar 5.0.1, ExternalSchemaCompatibilityCheck."""

    @classmethod
    def added(cls, name: str, number: int) -> SchemaType:
        """A kind of schema that Pulsar does not have, for a checker of one's own; the same one when it is added again.
        It is known in this process from now on; registries keep the name.

        Raises:
            ValueError: the name is no upper-case word, the number is below 1000, or one of them is another kind's.
        """
        if not (name.isascii() and name.isidentifier() and name.isupper()):
            raise ValueError(f"a kind of schema is named by an upper-case word, got {name!r:.60}")
        if number < _FIRST_ADDED:
            raise ValueError(f"numbers of added kinds of schema begin at {_FIRST_ADDED}, got {name} {number}")
        by_name, by_number = cls._member_map_.get(name), cls._value2member_map_.get(number)
        if by_name is None and by_number is None:
            made = object.__new__(cls)
            made._name_, made._value_ = name, number
            cls._member_map_[name] = cls._value2member_map_[number] = made
            cls._member_names_.append(name)
            return made
        if by_name is not by_number:
            raise ValueError(f"{name} {number} is another kind's already: {by_name or by_number}")
        return cls[name]


class CompatibilityStrategy(enum.Enum):
    """A strategy decides the existing versions with which a new schema must be compatible, and the directions."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """True when every existing version counts, and not the latest alone."""
        return self.name.endswith("_TRANSITIVE")

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions to check for each version; empty for the strategies with a constant result."""
        return _DIRECTIONS.get(self.name.removesuffix("_TRANSITIVE"), ())


class Direction(enum.Enum):
    """The direction names the reader: backward, the new schema reads data of the old one; forward, the other way
    round."""

    BACKWARD = "backward"
    FORWARD = "forward"


_DIRECTIONS = {
    "BACKWARD": (Direction.BACKWARD,),
    "FORWARD": (Direction.FORWARD,),
    "FULL": (Direction.BACKWARD, Direction.FORWARD),
}


class SchemaName(str):
    """A program declares a schema's name; called, it gives itself, as the official client's native object does:
    `info.name` and `info.name()` are the same."""

    __slots__ = ()

    def __call__(self) -> str:
        return str(self)


class SchemaText(bytes):
    """A program declares a schema's definition; called, it gives the text, as the official client's native object
    does."""

    def __call__(self) -> str:
        return self.decode("utf-8")


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A registry keeps a schema as this.

    Args:
        schema: the definition: Avro or JSON text, a protobuf descriptor, key and value schema; empty for primitives.
        properties: as clients send them; KEY_VALUE has the types of its two parts here.
    """

    type: SchemaType
    schema: bytes
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for attribute, required in (("type", SchemaType), ("schema", bytes), ("name", str), ("properties", Mapping)):
            value = getattr(self, attribute)
            if not isinstance(value, required):
                raise TypeError(
                    f"SchemaInfo.{attribute} must be {required.__name__}, got {type(value).__name__}: {value!r:.60}"
                )

    def schema_type(self) -> SchemaType:
        """`type`, as the official client's native object has it."""
        return self.type

    @classmethod
    def declared(
        cls, schema_type: SchemaType, schema: bytes, name: str, properties: Mapping[str, str] | None = None
    ) -> SchemaInfo:
        """The schema that a program declares: `name` and `schema` may be callables, too (`SchemaName`,
        `SchemaText`)."""
        return cls(schema_type, SchemaText(schema), SchemaName(name), properties or {})


@dataclass(frozen=True, slots=True)
class Difference:
    """A reader's schema cannot read, at this place, what a writer's schema wrote.

    Args:
        path: into the reader, in the form of the checker's section in the rules; "" for the schema as a whole.
        rule: the rule's name, as `READER_FIELD_MISSING_DEFAULT_VALUE`.
        message: both sides' values, as `the reader has long, the writer string`; version and direction are added.
    """

    path: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """A new schema may not follow for this reason.

    Args:
        path: where, as in `Difference`; below a KEY_VALUE schema it starts with `key:` or `value:`.
        version: the number of the existing version concerned, its index if the first one has number 0; where the new
            schema or the strategy alone is why, the newest one, and None when there is none.
        direction: None where it does not matter.
    """

    path: str
    rule: str
    message: str
    version: int | None
    direction: Direction | None = None

    def __str__(self) -> str:
        return f"{self.rule} at {self.path or 'the schema itself'}: {self.message}"


@dataclass(frozen=True, slots=True)
class CompatibilityResult:
    """The result holds every reason against the new schema: newest version first, then backward before forward, then by
    path."""

    incompatibilities: tuple[Incompatibility, ...]

    @property
    def is_compatible(self) -> bool:
        """True exactly when there is no incompatibility."""
        return not self.incompatibilities


class UnreadableSchema(Exception):
    """The text or bytes are no schema of their type. The message names the value and what was expected."""


Parsed = TypeVar("Parsed")


class PairChecker(Protocol[Parsed]):
    """A pair checker compares two schemas of one type.

    Neither method may raise any other error, for any bytes; neither may depend on Python's recursion limit; both end on
    schemas that refer to themselves.
    """

    def parse(self, schema: SchemaInfo) -> Parsed:
        """The schema in the form that `differences` takes; called once for each schema of a check.

        Raises:
            UnreadableSchema: the definition cannot be understood; it becomes one `SCHEMA_UNREADABLE` with path "".
        """
        ...

    def differences(self, reader: Parsed, writer: Parsed) -> Iterable[Difference]:
        """Every reason why `reader` cannot read what `writer` wrote; none when it can. Any order, duplicates allowed.

        Called with (new, existing) for backward and (existing, new) for forward. Where the new schema's properties
        change the rules, the function that picks the checker for the new schema picks another one (`compatibility.py`).

        Raises:
            UnreadableSchema: the two are too large to be compared.
        """
        ...
