"""Whether two schemas have the same meaning: `if` and the `unevaluated` keywords depend on more than the documents that
a schema allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_on_kafka_schema_compat.json_schema.document_model import (
    ArrayKeywords,
    Combined,
    Condition,
    Conjunction,
    Never,
    Not,
    ObjectKeywords,
    Place,
    Plain,
    Schema,
)
from pulsar_on_kafka_schema_compat.json_schema.fixed_point import Finding, Judge, Within

_DIFFERENT = Finding("", "CONDITION_CHANGED", "the two differ")
_Within = tuple[Place | None, ...]


def evaluates_the_same(writer: Plain, reader: Plain, judge: Judge) -> bool:
    """Whether the parts beside both are the same, and the parts inside them that evaluate properties and items."""
    within = (
        (writer.beside, reader.beside),
        _pairwise(_dependent(writer.objects), _dependent(reader.objects)),
        ((writer.arrays.contains,), (reader.arrays.contains,)),
    )
    return all(
        len(old) == len(new)
        and all(_same_or_both_absent(one, other, judge) for one, other in zip(old, new, strict=True))
        for old, new in within
    )


def _same_or_both_absent(one: Place | None, other: Place | None, judge: Judge) -> bool:
    return one is other or (one is not None and other is not None and judge.same(one, other))


def compare_same(one: Schema, other: Schema, judge: Judge) -> Iterator[Finding | Within]:
    """All differences between the two."""
    del judge
    match one, other:
        case Never(), Never():
            return
        case Plain(), Plain():
            own = _own_words(one) == _own_words(other)
            within = (_children(one), _children(other))
        case Combined(), Combined():
            own, within = one.criterion is other.criterion, (one.members, other.members)
        case Not(), Not():
            own, within = True, ((one.inner,), (other.inner,))
        case Condition(), Condition():
            own = True
            within = ((one.condition, one.then, one.otherwise), (other.condition, other.then, other.otherwise))
        case Conjunction(), Conjunction():
            own, within = True, (one.parts, other.parts)
        case _:
            own, within = False, ((), ())
    if not own or [place is None for place in within[0]] != [place is None for place in within[1]]:
        yield _DIFFERENT
        return
    for first, second in zip(*within, strict=True):
        if first is not None and second is not None:
            yield Within("", first.schema, second.schema)


def _own_words(plain: Plain) -> tuple[object, ...]:
    """The content without the schemas within, and their names."""
    objects, arrays = plain.objects, plain.arrays
    return (
        plain.types,
        None if plain.values is None else frozenset(plain.values),
        dict(plain.bounds),
        plain.pattern,
        list(objects.properties),
        objects.required,
        list(objects.patterns),
        objects.additional_given,
        {name: names for name, (_, names) in objects.required_with.items()},
        sorted(objects.schema_with),
        len(arrays.prefix),
        arrays.rest_given,
        arrays.unique,
    )


def _children(plain: Plain) -> _Within:
    return (*_of_objects(plain.objects), *_of_arrays(plain.arrays))


def _of_objects(objects: ObjectKeywords) -> _Within:
    return (
        *objects.properties.values(),
        *(place for _, place in objects.patterns.values()),
        objects.additional,
        objects.unevaluated,
        objects.names,
        *_dependent(objects).values(),
    )


def _dependent(objects: ObjectKeywords) -> dict[str, Place]:
    return {name: place for name, (_, place) in sorted(objects.schema_with.items())}


def _of_arrays(arrays: ArrayKeywords) -> _Within:
    return (*arrays.prefix, arrays.rest, arrays.idle_rest, arrays.unevaluated, arrays.contains)


def _pairwise(one: Mapping[str, Place], other: Mapping[str, Place]) -> tuple[_Within, _Within]:
    """Pairs by name; of unequal length where a name is missing on one side."""
    if one.keys() != other.keys():
        return (None,), ()
    return tuple(one.values()), tuple(other[name] for name in one)
