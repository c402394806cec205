"""A strategy becomes questions for a checker: of which versions, in which directions, and in which order answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pulsar_on_kafka_schema_compat.base.schema_model import (
    SCHEMA_UNREADABLE,
    STRATEGY_FORBIDS_CHANGE,
    CompatibilityStrategy,
    Direction,
    Incompatibility,
    PairChecker,
    SchemaInfo,
    UnreadableSchema,
)

Parsed = TypeVar("Parsed")

_DIRECTION_ORDER = {None: 0, Direction.BACKWARD: 1, Direction.FORWARD: 2}


@dataclass(frozen=True, slots=True)
class Version:
    """A version is an existing schema and its number: its index among all existing ones, above the first one's."""

    index: int
    schema: SchemaInfo


def versions_to_compare(
    existing: Sequence[SchemaInfo], strategy: CompatibilityStrategy, first_version: int = 0
) -> list[Version]:
    """The versions that count under `strategy`, newest first: every one if it is transitive, else the latest alone."""
    versions = [Version(number, schema) for number, schema in enumerate(existing, first_version)]
    versions.reverse()
    return versions if strategy.is_transitive else versions[:1]


def in_order(found: Iterable[Incompatibility]) -> tuple[Incompatibility, ...]:
    """The incompatibilities without duplicates: newest version first, then backward before forward, then by path."""
    return tuple(
        sorted(
            set(found),
            key=lambda one: (
                0 if one.version is None else 1,
                -(one.version or 0),
                _DIRECTION_ORDER[one.direction],
                one.path,
                one.rule,
                one.message,
            ),
        )
    )


def compare_versions(
    checker: PairChecker[Parsed], new: SchemaInfo, versions: Sequence[Version], strategy: CompatibilityStrategy
) -> list[Incompatibility]:
    """The incompatibilities of `new` with each of `versions` by `checker`: at least one version, newest first, of the
    same type.

    A strategy without directions only checks that the texts can be read.
    """
    found: list[Incompatibility] = []
    try:
        parsed_new = checker.parse(new)
    except UnreadableSchema as error:
        found.append(unreadable_new(versions[0], error))
        parsed_new = None
    for version in versions:
        try:
            parsed_old = checker.parse(version.schema)
        except UnreadableSchema as error:
            found.append(unreadable_version(version, error))
            continue
        if parsed_new is not None:
            for direction in strategy.directions:
                reader, writer = (
                    (parsed_new, parsed_old) if direction is Direction.BACKWARD else (parsed_old, parsed_new)
                )
                found.extend(_compare(checker, reader, writer, version, direction))
    return found


def _compare(
    checker: PairChecker[Parsed], reader: Parsed, writer: Parsed, version: Version, direction: Direction
) -> list[Incompatibility]:
    where = f"version {version.index}, {direction.value}"
    try:
        return [
            Incompatibility(one.path, one.rule, f"{where}: {one.message}", version.index, direction)
            for one in checker.differences(reader, writer)
        ]
    except UnreadableSchema as error:
        return [Incompatibility("", SCHEMA_UNREADABLE, f"{where}: {error}", version.index, direction)]


def unreadable_version(version: Version, error: UnreadableSchema) -> Incompatibility:
    """An unreadable existing schema."""
    return Incompatibility("", SCHEMA_UNREADABLE, f"version {version.index}: {error}", version.index)


def unreadable_new(newest: Version, error: UnreadableSchema) -> Incompatibility:
    """An unreadable new schema, which therefore can follow no version; the newest one stands for all."""
    return Incompatibility("", SCHEMA_UNREADABLE, f"version {newest.index}: the new schema: {error}", newest.index)


def changes_forbidden(version: Version) -> Incompatibility:
    """The only answer of ALWAYS_INCOMPATIBLE to a schema that differs."""
    return Incompatibility(
        "",
        STRATEGY_FORBIDS_CHANGE,
        f"version {version.index}: the new schema differs from it, and ALWAYS_INCOMPATIBLE forbids any change",
        version.index,
    )
