"""Values as they are typed and printed: times, message ids, properties, payloads. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from pulsar_on_kafka.client.values.message_id import MessageId
from pulsar_on_kafka_mapping.errors import InvalidMessageId
from pulsar_on_kafka_mapping.ids.ledger_ids import unpack_ledger_id
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RELATIVE: Final = re.compile(r"(?:\d+(?:ms|s|m|h|d|w))+")
_PART: Final = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_SECONDS: Final = range(10**8, 10**11)
"""Numbers that count as seconds: as milliseconds they lie in 1970 to 1973, as seconds in 1973 to 5138."""
_MESSAGE_ID: Final = re.compile(r"(\d+):(\d+)(?::(-1|\d+)(?::(\d+)(?::\d+)?)?)?")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def parse_time(text: str, now_ms: int) -> int:
    """Unix milliseconds of an ISO 8601 time, of Unix milliseconds, or of an age (`90s`, `1h30m`, `2d`).

    An ISO time without an offset is local time.

    Raises:
        ValueError: none of these; the message names the expected form.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        if int(text) in _SECONDS:
            raise ValueError(f"{text} looks like seconds, milliseconds are expected: {text}000")
        return int(text)
    if _RELATIVE.fullmatch(text):
        return now_ms - sum(int(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))
    try:
        # Python 3.10 reads no 'Z'.
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no time; expected ISO 8601 (2025-03-01T12:00Z), Unix milliseconds, or so long ago (90s, 1h)"
        ) from None


def time_text(unix_ms: int) -> str:
    """ISO 8601 in UTC; the bare number where no calendar reaches."""
    try:
        moment = datetime.fromtimestamp(unix_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_duration(text: str) -> int:
    """Milliseconds of `500ms`, `90s`, `1h30m`, `2d`.

    Raises:
        ValueError: none of these; a number without a unit is none either.
    """
    if not _RELATIVE.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is no duration; expected 500ms, 90s, 1h30m, 2d ...")
    return sum(int(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))


def duration_text(milliseconds: int) -> str:
    """The duration in the largest two units that fit, as `1h30m`; `0s` below a second."""
    sign, seconds = ("-" if milliseconds < 0 else ""), abs(milliseconds) // 1000
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        number, seconds = divmod(seconds, _UNIT_MS[unit] // 1000)
        if number or parts:
            parts.append(f"{number}{unit}")
    return sign + ("".join(part for part in parts[:2] if part[:-1] != "0") or "0s")


def ranges_text(ranges: Sequence[tuple[int, int]]) -> str:
    """`3, 5-9`: both ends inclusive."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def ranges_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges, for `ranges_text`."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def process_text(process: str) -> str:
    """`host:pid` of what names a process, at whose front a client id may stand (`base.processes`)."""
    host, separator, rest = process.rpartition("@")[2].partition(":")
    return f"{host}:{rest.partition(':')[0]}" if separator else process


def member_text(member: str) -> str:
    """`name (host:pid)` of a member of a Kafka group, as `client id` or `client id /address`."""
    client_id = member.partition(" ")[0]
    name, separator, process = client_id.partition("@")
    return f"{name} ({process_text(process)})" if separator else member


def parse_message_id(text: str) -> NativeMessageId:
    """`ledger:entry`, `ledger:entry:partition`, `ledger:entry:partition:index` of a message of a batch, `earliest` or
    `latest`. The ledger determines a missing partition, or -1. Spark's texts end with the size of the batch, which is
    not needed.

    Raises:
        ValueError: something else; the message names the expected form.
    """
    text = text.strip()
    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    found = _MESSAGE_ID.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no message id; expected ledger:entry[:partition[:index]], earliest or latest")
    ledger_id, entry_id = int(found[1]), int(found[2])
    try:
        partition = unpack_ledger_id(ledger_id).partition if found[3] in (None, "-1") else int(found[3])
    except InvalidMessageId as error:
        raise ValueError(str(error)) from error
    return NativeMessageId(partition, ledger_id, entry_id, -1 if found[4] is None else int(found[4]))


def message_id_text(message_id: NativeMessageId) -> str:
    """The form that `parse_message_id` reads."""
    if message_id == MessageId.earliest:
        return "earliest"
    if message_id == MessageId.latest:
        return "latest"
    short = f"{message_id.ledger_id()}:{message_id.entry_id()}"
    if message_id.batch_index() >= 0:
        return f"{short}:{message_id.partition()}:{message_id.batch_index()}"
    return short if message_id.partition() < 0 else f"{short}:{message_id.partition()}"


def parse_properties(given: Sequence[str]) -> dict[str, str]:
    """Properties from `name=value`, the last of a name counts.

    Raises:
        ValueError: one has no name or no '='.
    """
    properties = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise ValueError(f"{item!r} is no property; expected name=value")
        properties[name] = value
    return properties


def payload_fields(payload: bytes) -> dict[str, str]:
    """`payload` when it is UTF-8, `payload_base64` otherwise."""
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode("ascii")}


def payload_text(payload: bytes) -> str:
    """One printable line; `base64:...` when the payload is no UTF-8."""
    fields = payload_fields(payload)
    return printable(fields["payload"]) if "payload" in fields else f"base64:{fields['payload_base64']}"


def printable(text: str) -> str:
    r"""The text on one line, control characters as `\n`, `\x1b` ...: a payload must not steer the terminal."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
