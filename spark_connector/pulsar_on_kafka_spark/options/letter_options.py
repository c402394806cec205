"""The options of `dead_letter`, which are checked before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka_spark.base.errors import InvalidReadOption
from pulsar_on_kafka_spark.options.read_options import plain_name
from pulsar_on_kafka_spark.options.stream_options import StreamOptions, parse_stream_options

LETTER_NAMES: Final = {
    plain_name(name): name for name in ("deadLetterTopic", "initialSubscriptionName", "reason", "reasonColumn")
}
"""The options that dead letters alone have, by plain name."""


@dataclass(frozen=True, slots=True)
class LetterOptions:
    """The options of checked dead letters.

    Attributes:
        stream: how to reach the topics and their subscription, which is there.
        dead_letter_topic: '' for `<topic>-<subscription>-DLQ`.
        initial_subscription: created on the dead letter topic; '' for none.
        reason: of letters without one in `reason_column`; '' for none.
        reason_column: the column that has each letter's reason; '' for none.
    """

    stream: StreamOptions
    dead_letter_topic: str = ""
    initial_subscription: str = ""
    reason: str = ""
    reason_column: str = ""

    @property
    def subscription(self) -> str:
        return self.stream.read.subscription or ""


def parse_letter_options(given: Mapping[str, Any]) -> LetterOptions:
    """Raises InvalidReadOption: names the option and the expectation."""
    own: dict[str, str] = {}
    rest: dict[str, Any] = {}
    for name, value in given.items():
        known = LETTER_NAMES.get(plain_name(name))
        if known is None:
            rest[name] = value
        elif value is not None and (not isinstance(value, str) or not value.strip()):
            raise InvalidReadOption(f"{known} is {value!r:.80}, expected a text")
        elif value is not None:
            own[known] = value.strip()
    stream = parse_stream_options(rest, LETTER_NAMES)
    if stream.read.subscription is None:
        raise InvalidReadOption("no subscription is given: expected subscription, whose messages these are")
    return LetterOptions(
        stream,
        own.get("deadLetterTopic", ""),
        own.get("initialSubscriptionName", ""),
        own.get("reason", ""),
        own.get("reasonColumn", ""),
    )
