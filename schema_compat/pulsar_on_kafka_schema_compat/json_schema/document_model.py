"""A JSON Schema document is a graph of schemas.

A `Place` is the position of a schema; once a document is read, its `schema` is the effective one: references are
followed, and a combination of one member is that member. Comparison distinguishes schemas by identity: nothing here has
equality.

A key of `patternProperties` is a foreign regular expression, so it may take a Python matcher exponential time, or be of
a dialect that Python lacks. Such a pattern is compared as text alone, and its matches count as unknown.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

_MAX_PATTERN: Final = 500
_MAX_NAME: Final = 256
_MAX_REPEATS: Final = 3

# A group that holds a repetition or a choice, or that is nested, and is repeated itself: (a+)+, (a|a)*, (.*,){9}.
_REPEATED_GROUP: Final = re.compile(r"\)\s*[*+{]")
_REPEAT: Final = re.compile(r"[*+]|\{\d*,?\d*\}")
# Warned about or read otherwise by Python: sets within sets, flags, atomic groups, classes and escapes that ECMA lacks.
_FOREIGN: Final = re.compile(
    r"\[\[|\[\^?\]|--|&&|~~|\|\||\(\?(?!:|=|!|<=|<!)|\\[^\\dDwWsSbBtnrfv.*+?^$()\[\]{}|/-]|[*+?}]\+"
)


@dataclass(frozen=True, slots=True)
class PropertyPattern:
    """A pattern is a key of `patternProperties`; `compiled` is None where it can only be compared as text."""

    text: str
    compiled: re.Pattern[str] | None

    @classmethod
    def read(cls, text: str) -> PropertyPattern:
        """The pattern with that text; any text will do."""
        if (
            len(text) > _MAX_PATTERN
            or _FOREIGN.search(text)
            or _REPEATED_GROUP.search(text)
            or len(_REPEAT.findall(text)) > _MAX_REPEATS
        ):
            return cls(text, None)
        try:
            return cls(text, re.compile(text, re.ASCII))
        except (re.error, OverflowError, RecursionError):
            return cls(text, None)

    def matches(self, name: str) -> bool | None:
        """Whether it is found anywhere in `name`; None when that is unknown."""
        if self.compiled is None or len(name) > _MAX_NAME:
            return None
        return self.compiled.search(name) is not None


TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

Number = int | Decimal


class Criterion(enum.Enum):
    """The number of members of a combination that a document has to satisfy."""

    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"


@dataclass(eq=False, slots=True)
class Place:
    """A schema stands here.

    Args:
        pointer: from the document's root, `#/properties/a`.
        has_default: the schema written here, not one that it refers to, has the keyword `default`.
    """

    pointer: str
    schema: Schema
    has_default: bool = False


@dataclass(eq=False, slots=True)
class Never:
    """The schema `false` allows no document."""


@dataclass(eq=False, slots=True)
class Combined:
    """A combination is `allOf`, `anyOf` or `oneOf`; equal members are there once."""

    criterion: Criterion
    members: tuple[Place, ...]


@dataclass(eq=False, slots=True)
class Not:
    """`not` allows what its schema does not."""

    inner: Place


@dataclass(eq=False, slots=True)
class Condition:
    """A condition is `if` with its `then` and `else`."""

    condition: Place
    then: Place | None
    otherwise: Place | None


@dataclass(eq=False, slots=True)
class Reference:
    """A reference is `$ref`, until the document is read."""

    target: Place


@dataclass(eq=False, slots=True)
class Conjunction:
    """A schema with keywords of several sorts demands all of them: its own assertions, `anyOf`, `$ref` and so on."""

    parts: tuple[Place, ...]


@dataclass(eq=False, slots=True)
class ObjectKeywords:
    """The keywords about objects. None stands for an absent keyword or one that allows everything.

    Args:
        additional_given: `additionalProperties` exists, so that `unevaluatedProperties` has no effect.
        required_with, schema_with: dependencies of a property, with the keyword that they stand under.
    """

    properties: Mapping[str, Place] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    patterns: Mapping[str, tuple[PropertyPattern, Place]] = field(default_factory=dict)
    additional: Place | None = None
    unevaluated: Place | None = None
    names: Place | None = None
    additional_given: bool = False
    required_with: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    schema_with: dict[str, tuple[str, Place]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class ArrayKeywords:
    """The keywords about arrays. None stands for an absent keyword or one that allows everything.

    Args:
        rest: the schema of the items behind `prefix`; of all items without a prefix.
        rest_given: `rest_keyword` exists, so that `unevaluatedItems` has no effect.
        idle_rest: `additionalItems` without a list of items: validators ignore it.
    """

    prefix: tuple[Place, ...] = ()
    prefix_keyword: str = "items"
    rest: Place | None = None
    rest_keyword: str = "items"
    rest_given: bool = False
    idle_rest: Place | None = None
    unevaluated: Place | None = None
    contains: Place | None = None
    unique: bool = False


# The value for most schemas, which constrain neither objects nor arrays.
ANY_OBJECT: Final = ObjectKeywords()
ANY_ARRAY: Final = ArrayKeywords()


@dataclass(eq=False, slots=True)
class Plain:
    """A plain schema consists of its assertions.

    Args:
        types: None without `type`; `number` includes `integer`.
        values: of `enum` or `const`: what is equal for equal values, and the value as text.
        value_types: the types of `values`.
        bounds: by keyword: `maxLength`, `minimum`, `multipleOf` ...
        beside: the schema's parts of other sorts, with which `unevaluatedProperties` reckons.
    """

    types: frozenset[str] | None = None
    values: Mapping[bytes, str] | None = None
    value_types: frozenset[str] = TYPES
    values_keyword: str = "enum"
    bounds: Mapping[str, Number] = field(default_factory=dict)
    pattern: str | None = None
    objects: ObjectKeywords = ANY_OBJECT
    arrays: ArrayKeywords = ANY_ARRAY
    allows_everything: bool = False
    beside: tuple[Place, ...] = ()
    by_type: Combined | None = None


Schema = Never | Plain | Combined | Not | Condition | Reference | Conjunction


@dataclass(frozen=True, slots=True)
class Document:
    """A document is a JSON Schema document that was read.

    Args:
        identifier: the root's `$id` or `id`; "" without.
        digest: equal for documents that are equal as JSON values.
    """

    root: Place
    identifier: str
    digest: bytes
