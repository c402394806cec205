"""The suite is what `suite.toml` expects of Pulsar's tests; it judges what was seen of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pulsar_on_kafka.base.toml import tomllib

OURS: Final = Path(__file__).with_name("suite.toml")
_SHOWN: Final = 300


class BadSuite(Exception):
    """A file that is no suite; the message is one line."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why tests do not pass.

    Attributes:
        why: for people.
        shows: what each of their failures says; '' where they say different things.
        sometimes: whether they may pass as well.
    """

    why: str
    shows: str = ""
    sometimes: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A method of a class, which may have been run several times."""

    method: str
    passed: bool
    told: str
    """Of its first failure."""
    ms: int


def merged(runs: Iterable[Mapping[str, Any]]) -> list[Seen]:
    """A method has passed when each of its runs has."""
    found: dict[str, Seen] = {}
    for run in runs:
        method, passed, told, ms = run["method"], run["passed"], run["told"], run["ms"]
        before = found.get(method, Seen(method, True, "", 0))
        found[method] = Seen(method, before.passed and passed, before.told or told, before.ms + ms)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Suite:
    """Names are those of classes below `org.apache.pulsar`."""

    classes: Sequence[str]
    listed: Mapping[str, Mapping[str, Reason]]
    """Of a class, the methods that do not pass."""
    left_out: Mapping[str, str]
    """Reasons why classes are not run."""

    def wrong(self, name: str, seen: Sequence[Seen]) -> Iterator[str]:
        """What was not expected of a class, a line each."""
        listed = self.listed.get(name, {})
        for each in seen:
            what, reason = f"{name}.{each.method}", listed.get(each.method)
            if reason is None:
                if not each.passed:
                    yield f"{what} is not listed and failed: {each.told[:_SHOWN]}"
            elif each.passed:
                if not reason.sometimes:
                    yield f"{what} is listed and passed ({reason.why})"
            elif reason.shows not in each.told:
                yield f"{what} is listed for another failure ({reason.shows}): {each.told[:_SHOWN]}"
        for method in sorted(listed.keys() - {each.method for each in seen}):
            yield f"{name}.{method} is listed and was not run"

    def not_named(self, known: Iterable[str]) -> Iterator[str]:
        """Which of these classes are neither run nor left out."""
        for name in sorted(set(known) - set(self.classes) - self.left_out.keys()):
            yield f"{name} is neither run nor left out"

    def reasons(self, name: str, seen: Sequence[Seen]) -> Counter[str]:
        """How many methods of a class did not pass, by reason."""
        listed = self.listed.get(name, {})
        return Counter(listed[each.method].why for each in seen if not each.passed and each.method in listed)


def read_suite(file: Path = OURS) -> Suite:
    """
    classes = ["client.api.ATest", "client.impl.BTest"]
    [[listed]]
    why = "the gateway has no broker inside"
    shows = "is inside of a broker"
    "client.api.ATest" = ["testOne", "testTwo"]
    [[left_out]]
    why = "it starts brokers"
    classes = ["client.api.CTest"]

    Raises:
        BadSuite: it is no such file, or names something twice.
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise BadSuite(f"{file} cannot be read: {failure}") from failure
    classes: list[str] = found.get("classes", [])
    listed: dict[str, dict[str, Reason]] = {name: {} for name in classes}
    for group in found.get("listed", []):
        reason = Reason(group.pop("why"), group.pop("shows", ""), group.pop("sometimes", False))
        for name, methods in group.items():
            for method in methods:
                if name not in listed:
                    raise BadSuite(f"{file}: {name}.{method} is listed, and its class is not run")
                if method in listed[name]:
                    raise BadSuite(f"{file}: {name}.{method} is listed twice")
                listed[name][method] = reason
    left_out = {name: group["why"] for group in found.get("left_out", []) for name in group["classes"]}
    twice = [name for name, times in Counter([*classes, *left_out]).items() if times > 1]
    if twice:
        raise BadSuite(f"{file}: {twice[0]} stands there twice")
    return Suite(tuple(classes), listed, left_out)
