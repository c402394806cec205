"""These rules compare objects: properties under a content model, what is required, and dependencies (rules, sections
5.3 and 5.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_on_kafka_schema_compat.json_schema.assertions import escape
from pulsar_on_kafka_schema_compat.json_schema.bounds import screaming
from pulsar_on_kafka_schema_compat.json_schema.document_model import Never, ObjectKeywords, Place, Plain
from pulsar_on_kafka_schema_compat.json_schema.evaluation import evaluates_the_same
from pulsar_on_kafka_schema_compat.json_schema.fixed_point import Finding, Judge, Within


@dataclass(frozen=True, slots=True)
class Cover:
    """The schemas for an undeclared name of an object.

    Args:
        places: the schemas for it, all of which count; without any the name is forbidden, unless `is_open`.
        is_open: any value is allowed.
    """

    places: tuple[Place, ...]
    is_open: bool


@dataclass(frozen=True, slots=True)
class ContentModel:
    """The rules of one side for undeclared names: its patterns, and the rest of them."""

    keywords: ObjectKeywords
    rest: Place | None

    @classmethod
    def of_writer(cls, plain: Plain) -> ContentModel:
        """Names that another part of the schema might evaluate count as open."""
        objects = plain.objects
        open_anyway = plain.beside or objects.schema_with
        rest = objects.additional if objects.additional_given or open_anyway else objects.unevaluated
        return cls(objects, rest)

    @classmethod
    def of_reader(cls, plain: Plain) -> ContentModel:
        objects = plain.objects
        return cls(objects, objects.additional if objects.additional_given else objects.unevaluated)

    def cover(self, name: str) -> Cover:
        """The cover of `name`, which is not declared; a pattern that may match it or not counts as both."""
        matched: list[Place] = []
        surely = False
        for pattern, place in self.keywords.patterns.values():
            matches = pattern.matches(name)
            if matches is not False:
                matched.append(place)
            surely = surely or matches is True
        if surely:
            return Cover(tuple(matched), False)
        if self.rest is None:
            return Cover(tuple(matched), True)
        return Cover((*matched, self.rest), False)


def compare_objects(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding | Within]:
    """Why the reader does not allow every object that the writer allows."""
    yield from _compare_required(writer.objects, reader.objects)
    old, new = ContentModel.of_writer(writer), ContentModel.of_reader(reader)
    for name in sorted(writer.objects.properties.keys() | reader.objects.properties.keys()):
        step = f"/properties/{escape(name)}"
        was, now = writer.objects.properties.get(name), reader.objects.properties.get(name)
        if was is not None and now is not None:
            yield Within(step, was.schema, now.schema)
        elif now is not None:
            yield from _property_added(step, name, now, old, new, judge)
        elif was is not None:
            yield from _removed(step, was, new.cover(name), judge)
    yield from _compare_patterns(old, new, judge)
    yield from _compare_rest(writer, reader, judge)
    yield from _compare_names(writer.objects.names, reader.objects.names)
    yield from _compare_dependencies(writer.objects, reader.objects)


def _compare_required(writer: ObjectKeywords, reader: ObjectKeywords) -> Iterator[Finding]:
    """Newly required properties, but those that are new themselves: see `_property_added`."""
    for name in sorted(reader.required - writer.required):
        declared = reader.properties.get(name)
        if declared is not None and (declared.has_default or name not in writer.properties):
            continue
        message = f"the reader requires {name!r:.60}, the writer does not"
        yield Finding(f"/required/{escape(name)}", "REQUIRED_ATTRIBUTE_ADDED", message)


def _property_added(
    step: str, name: str, now: Place, old: ContentModel, new: ContentModel, judge: Judge
) -> Iterator[Finding]:
    required = name in new.keywords.required and name not in old.keywords.required
    cover = old.cover(name)
    message = f"the reader declares {name!r:.60}, the writer allows it undeclared"
    if cover.is_open:
        if required and not now.has_default:
            yield Finding(step, "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", message)
        elif not _allows_everything(now):
            sort = "REQUIRED_PROPERTY_WITH_DEFAULT" if required else "OPTIONAL_PROPERTY"
            yield Finding(step, f"{sort}_ADDED_TO_OPEN_CONTENT_MODEL", message)
        return
    if cover.places and not any(judge.accepts(place, now) for place in cover.places):
        yield Finding(
            step, "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", f"{message} with another schema"
        )
    if required and not now.has_default:
        yield Finding(
            step,
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
            f"the reader requires {name!r:.60}, which the writer does not declare",
        )


def _allows_everything(place: Place) -> bool:
    return isinstance(place.schema, Plain) and place.schema.allows_everything


def _removed(step: str, was: Place, cover: Cover, judge: Judge) -> Iterator[Finding]:
    """`was` is no longer declared, or no pattern any more; `cover` is what the reader has for it instead."""
    if isinstance(was.schema, Never):
        return
    if not cover.is_open and all(isinstance(place.schema, Never) for place in cover.places):
        yield Finding(
            step, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "the writer allows it, the reader allows nothing there"
        )
    elif not all(judge.accepts(was, place) for place in cover.places):
        yield Finding(
            step,
            "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
            "the writer allows more there than the reader's schema for undeclared names",
        )


def _compare_patterns(old: ContentModel, new: ContentModel, judge: Judge) -> Iterator[Finding | Within]:
    for text in sorted(old.keywords.patterns.keys() | new.keywords.patterns.keys()):
        step = f"/patternProperties/{escape(text)}"
        was, now = old.keywords.patterns.get(text), new.keywords.patterns.get(text)
        if was is not None and now is not None:
            yield Within(step, was[1].schema, now[1].schema)
        elif was is not None:
            rest = Cover(() if new.rest is None else (new.rest,), new.rest is None)
            yield from _removed(step, was[1], rest, judge)
        elif now is not None and not all(judge.accepts(place, now[1]) for place in _matched_by(text, old, new)):
            yield Finding(step, "PATTERN_PROPERTIES_ADDED", "the reader has the pattern, the writer allows more there")


def _matched_by(text: str, old: ContentModel, new: ContentModel) -> Iterator[Place]:
    """The writer's schemas for names that the reader's new pattern `text` may match."""
    pattern, _ = new.keywords.patterns[text]
    for name, place in old.keywords.properties.items():
        if pattern.matches(name) is not False:
            yield place
    for _, place in old.keywords.patterns.values():
        yield place
    yield _ANYTHING if old.rest is None else old.rest


_ANYTHING = Place("", Plain(allows_everything=True))


def _compare_rest(writer: Plain, reader: Plain, judge: Judge) -> Iterator[Finding | Within]:
    """`additionalProperties`, or `unevaluatedProperties` where the reader has only that."""
    old, new = writer.objects, reader.objects
    by_additional = new.additional_given
    now = new.additional if by_additional else new.unevaluated
    if now is None:
        return
    keyword = "additionalProperties" if by_additional else "unevaluatedProperties"
    others_evaluate = not old.additional_given and bool(writer.beside or old.schema_with)
    was = old.additional
    if not old.additional_given and not (by_additional and others_evaluate):
        was = old.unevaluated
    yield from compare_rest(keyword, was, now)
    if others_evaluate and not by_additional and not evaluates_the_same(writer, reader, judge):
        yield Finding(f"/{keyword}", f"{screaming(keyword)}_NARROWED", "which names it is left with has changed")


def compare_rest(keyword: str, was: Place | None, now: Place, rule_keyword: str = "") -> Iterator[Finding | Within]:
    """Compares the rules for values that are not listed, None for everything; rules are named after `rule_keyword`, if
    given."""
    step, rule = f"/{keyword}", screaming(rule_keyword or keyword)
    if was is not None and isinstance(was.schema, Never):
        return
    if isinstance(now.schema, Never):
        yield Finding(step, f"{rule}_REMOVED", "the reader allows no others, the writer does")
    elif was is None:
        yield Finding(step, f"{rule}_NARROWED", "the reader has a schema for others, the writer allows any")
    else:
        yield Within(step, was.schema, now.schema)


def _compare_names(was: Place | None, now: Place | None) -> Iterator[Finding | Within]:
    if now is None:
        return
    if was is None:
        yield Finding("/propertyNames", "PROPERTY_NAMES_ADDED", "the reader restricts names, the writer does not")
    else:
        yield Within("/propertyNames", was.schema, now.schema)


def _compare_dependencies(writer: ObjectKeywords, reader: ObjectKeywords) -> Iterator[Finding | Within]:
    for name, (keyword, now) in sorted(reader.required_with.items()):
        step = f"/{keyword}/{escape(name)}"
        was = writer.required_with.get(name, ("", None))[1]
        message = f"with {name!r:.60} the reader requires {sorted(now)}, the writer {sorted(was or ())}"
        if was is None:
            yield Finding(step, "DEPENDENCY_ARRAY_ADDED", message)
        elif not now <= was:
            yield Finding(step, f"DEPENDENCY_ARRAY_{'EXTENDED' if was < now else 'CHANGED'}", message)
    for name, (keyword, place) in sorted(reader.schema_with.items()):
        step = f"/{keyword}/{escape(name)}"
        before = writer.schema_with.get(name)
        if before is None:
            yield Finding(
                step, "DEPENDENCY_SCHEMA_ADDED", f"with {name!r:.60} the reader has a schema, the writer none"
            )
        else:
            yield Within(step, before[1].schema, place.schema)
