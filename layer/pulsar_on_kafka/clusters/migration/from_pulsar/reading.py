"""Reads partitions of Pulsar topics entry by entry, with the official Python client (`pulsar-client`).

A reader has no durable subscription, so reading changes nothing there. The client has no methods for a message's
sequence id, which its text form contains, and for the size of a batch, which the serialized id contains.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import Entry, PulsarMessage
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position
from pulsar_on_kafka_mapping.ids.message_id import decode_message_id
from pulsar_on_kafka_mapping.records.encryption_header import EncryptedKey, EncryptionInfo

_log: Final = logging.getLogger(__name__)

EXTRA: Final = "pip install 'pulsar-on-kafka[pulsar-import]'"
_QUEUE: Final = 2_000
_WAIT_MS: Final = 500
_SILENCE_S: Final = 15.0
"""A silence of this length counts as the end, where it is unknown whether more messages follow."""
_OPERATION_S: Final = 30
_NO_BATCH: Final = -1
_CHUNKS_EXPIRE_S: Final = 60.0
"""A message in chunks that is not complete so long after its first chunk came is given up by the client's readers."""
_BACK_ENTRIES: Final = 4_096
"""After chunks expired the partition is read again from this many entries back."""

_UNCACHED: Final = re.compile(r"Received an uncached chunk \(uuid: (.*) chunkId: (\d+), messageId: \((\d+),(\d+),")
_MAX_GIVEN_UP: Final = 10_000


class IncompleteMessage(NamedTuple):
    """A message in chunks that Pulsar's client does not return: it has dropped the chunks before the one at `position`,
    of which there are `chunks_before`."""

    position: Position
    chunks_before: int


class _ClientLog:
    """Receives the log lines of Pulsar's client, for all readings of this process: the client keeps the first logger
    that it gets. It writes into a file without a name. With one of Python's loggers client 3.13 aborts the process
    when Pulsar sends a reader to another cluster (`Invalid BaseCommand enumeration value`).

    The client assembles ten messages in chunks at a time and drops the oldest one for an eleventh. Only its log shows
    that: when a chunk of an unknown message arrives. Memory: `_MAX_GIVEN_UP` messages.
    """

    def __init__(self) -> None:
        self.received = False
        self.given_up: dict[str, IncompleteMessage] = {}
        self.changes = 0
        """Grows with each chunk that was given up."""
        self._uuids: dict[Position, str] = {}
        self._further = logging.getLogger(f"{__name__}.client")
        self._file: IO[str] | None = None
        self._begun = ""
        """A line whose end is not written yet."""

    def client(self, pulsar: ModuleType, service_url: str, **options: Any) -> Any:
        """A client with this log."""
        with tempfile.TemporaryDirectory(prefix="pok-pulsar-client-") as directory:
            path = Path(directory) / "log"
            path.touch()
            file = path.open(encoding="utf-8", errors="replace")
            made = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(path)), **options)
        if self._file is None:
            self._file = file
        else:
            file.close()
        return made

    def read(self) -> None:
        """Take the lines since the last call."""
        if self._file is None or not (text := self._file.read()):
            return
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self.receive(line)

    def receive(self, line: str) -> None:
        self.received = True
        found = _UNCACHED.search(line)
        if found is None:
            self._further.debug("%s", line)
        elif found[1] in self.given_up or len(self.given_up) < _MAX_GIVEN_UP:
            self.given_up[found[1]] = IncompleteMessage(Position(int(found[3]), int(found[4])), int(found[2]))
            self._uuids[self.given_up[found[1]].position] = found[1]
            self.changes += 1

    def forget(self, position: Position) -> None:
        """Drop the message of which the chunk at this position was given up last, if there is one."""
        uuid = self._uuids.pop(position, None)
        if uuid is not None and (found := self.given_up.get(uuid)) is not None and found.position == position:
            del self.given_up[uuid]

    def forget_all(self) -> None:
        self.given_up.clear()
        self._uuids.clear()


_CLIENT_LOG: Final = _ClientLog()


class _Passed:
    """The entries of one partition that were yielded, and where its client begins again after chunks expired in it.

    The client gives up an incomplete message in chunks by its own clock, also where the other chunks could not come,
    because it waits for its caller. Memory: the positions of `_BACK_ENTRIES` entries, and a name for each chunk that
    was given up.
    """

    def __init__(self, start: Position | None, chunks_expire_s: float) -> None:
        self.start = start
        self._expire_s = chunks_expire_s
        self._none_expires = Deadline.never()
        self._last: deque[Position] = deque(maxlen=_BACK_ENTRIES)
        self._tried: set[tuple[str, Position]] = set()
        """Chunks for which the client began again, or need not."""
        self._untried: set[tuple[str, Position]] = set()
        self._changes = -1
        """`_ClientLog.changes` at the last look."""

    def begin(self) -> Position | None:
        """The start position of the client that is about to be opened."""
        self._none_expires = Deadline.after(self._expire_s)
        return self._last[0] if self._last else self.start

    def add(self, position: Position) -> None:
        """An entry is about to be yielded. Of a message in chunks, which was perhaps given up before, it is the end."""
        self._last.append(position)
        _CLIENT_LOG.forget(position)

    def has(self, position: Position) -> bool:
        return bool(self._last) and position <= self._last[-1]

    def chunks_expired(self, following: Position | None) -> bool:
        """The client has given up messages, perhaps because they expired, whose chunks lie between the last entry here
        and the `following` one: they come behind `begin`, or are given up again. Once for each chunk."""
        _CLIENT_LOG.read()
        if (changes := _CLIENT_LOG.changes) != self._changes:
            self._changes = changes
            self._untried = {(uuid, each.position) for uuid, each in [*_CLIENT_LOG.given_up.items()]} - self._tried
        due = {each for each in self._untried if following is None or each[1] < following}
        self._untried -= due
        self._tried |= due
        ahead = [position for _, position in due if not self.has(position)]
        if not ahead or not self._none_expires.passed():
            return False
        for position in ahead:
            _CLIENT_LOG.forget(position)
        return True


MoreComes = Callable[[Position | None], bool]


@dataclass(frozen=True, slots=True)
class PulsarAddress:
    """Address of a Pulsar cluster. `token`: a JSON Web Token; `trust_certs`: the authorities that signed its
    certificates (PEM); `private_key`: of messages that are encrypted, which are stored in clear then."""

    service_url: str
    admin_url: str
    token: str = field(default="", repr=False)
    trust_certs: str = ""
    private_key: str = ""


def official_client() -> ModuleType:
    """Raises Refused: it is not installed; the error explains how to install it."""
    try:
        import pulsar
    except ImportError as missing:
        raise errors.Refused(f"reading from Pulsar takes the package pulsar-client: {EXTRA} ({missing})") from missing
    return pulsar  # type: ignore[no-any-return]


def connect(address: PulsarAddress, operation_s: int = _OPERATION_S) -> Any:
    """A client of Pulsar, with this operation time-out in seconds. Raises Refused: pulsar-client is not installed."""
    pulsar = official_client()
    options: dict[str, Any] = {"operation_timeout_seconds": operation_s}
    if address.token:
        options["authentication"] = pulsar.AuthenticationToken(address.token)
    if address.trust_certs:
        options["tls_trust_certs_file_path"] = address.trust_certs
    return _CLIENT_LOG.client(pulsar, address.service_url, **options)


class PulsarReading:
    """Reads partitions, in one thread. Memory: 2,000 messages of the partition that is read, the messages of one entry,
    and the positions of the last 4,096 entries."""

    def __init__(self, address: PulsarAddress, chunks_expire_s: float = _CHUNKS_EXPIRE_S) -> None:
        """Connects when it first reads. Raises Refused: pulsar-client is not installed."""
        self._chunks_expire_s = chunks_expire_s
        self._pulsar = official_client()
        self._address = address
        self._client: Any = None

    def close(self) -> None:
        """A second call does nothing."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def given_up(self) -> list[IncompleteMessage]:
        """Messages that the client dropped since the last call of `entries`; also messages whose beginning is no longer
        in Pulsar, or lies before the start of the reading. 10,000 at most."""
        _CLIENT_LOG.read()
        return sorted(_CLIENT_LOG.given_up.values())

    def entries(
        self, topic: str, start: Position | None, last: Position, more_comes: MoreComes, deadline: Deadline
    ) -> Iterator[Entry]:
        """The entries of a partition from `start` (inclusive; None: its beginning) to `last` (inclusive), in order.

        `more_comes` returns whether readers get any message behind a position (None: of all). It is called when Pulsar
        reports more and nothing arrived for half a second. Behind the last message there may be entries that no reader
        gets: markers, and messages of open or aborted transactions.

        The caller may be slow: where the client has dropped chunks meanwhile, though the others lie in Pulsar, the
        partition is read again from some entries back.

        Raises:
            StoreError: Pulsar cannot be read now.
            Corrupt: a message cannot be decoded.
            DeadlineExceeded: it takes too long.
        """
        if last.entry_id < 0 or (start is not None and start > last):
            return
        _CLIENT_LOG.read()
        _CLIENT_LOG.forget_all()
        passed = _Passed(start, self._chunks_expire_s)
        waiting: list[Any] = []
        for message in self._messages(topic, passed, last, more_comes, deadline):
            if message is None:
                waiting.clear()
                continue
            waiting.append(message)
            if len(waiting) < _messages_of(message):
                continue
            position = _position(message)
            passed.add(position)
            yield self._entry(topic, position, waiting)
            waiting.clear()
            if position == last:
                return

    def _messages(
        self, topic: str, passed: _Passed, last: Position, more_comes: MoreComes, deadline: Deadline
    ) -> Iterator[Any]:
        """Messages behind all `passed` ones; None where the client restarts behind that."""
        reader = self._reader(topic, passed.begin())
        _CLIENT_LOG.read()
        if not _CLIENT_LOG.received:
            _log.warning(
                "another client of Pulsar in this process has its log: no messages in chunks that it gives up are named"
            )
        start = passed.start
        read = None if start is None else Position(start.ledger_id, start.entry_id - 1)
        requested = False
        silence = Deadline.after(_SILENCE_S)
        try:
            while True:
                deadline.check(f"{topic} to be read to {last}")
                message = self._next(reader, topic)
                if passed.chunks_expired(None if message is None else _position(message)):
                    _log.info("topic=%s chunks expired while they waited here: some entries are read again", topic)
                    reader.close()
                    reader = self._reader(topic, passed.begin())
                    silence, requested = Deadline.after(_SILENCE_S), False
                    yield None
                elif message is None:
                    if not self._more(reader, topic):
                        return
                    if not requested and not more_comes(read):
                        return
                    requested = True
                    if silence.passed():
                        _log.warning("topic=%s ends at %s, but Pulsar gives nothing more", topic, last)
                        return
                else:
                    silence, requested = Deadline.after(_SILENCE_S), False
                    read = _position(message)
                    if read > last:
                        return
                    if not passed.has(read):
                        yield message
        finally:
            reader.close()

    def _reader(self, topic: str, start: Position | None) -> Any:
        pulsar = self._pulsar
        at = pulsar.MessageId.earliest if start is None else self._message_id(start)
        options: dict[str, Any] = {}
        if self._address.private_key:
            options["crypto_key_reader"] = pulsar.CryptoKeyReader("", self._address.private_key)
        try:
            return self._connected().create_reader(
                topic,
                at,
                receiver_queue_size=_QUEUE,
                start_message_id_inclusive=True,
                # What it cannot decrypt it must hand out as it is: otherwise it would come to no end.
                crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
                **options,
            )
        except pulsar.PulsarException as failure:
            raise errors.ConnectFailed(f"reading {topic} of {self._address.service_url}: {failure}") from failure

    def _message_id(self, at: Position) -> Any:
        return self._pulsar.MessageId(-1, at.ledger_id, max(0, at.entry_id), -1)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = connect(self._address)
        return self._client

    def _next(self, reader: Any, topic: str) -> Any:
        """None when none came for half a second."""
        try:
            return reader.read_next(_WAIT_MS)
        except self._pulsar.Timeout:
            return None
        except self._pulsar.PulsarException as failure:
            raise errors.ConnectFailed(f"reading {topic} of {self._address.service_url}: {failure}") from failure

    def _more(self, reader: Any, topic: str) -> bool:
        try:
            return bool(reader.has_message_available())
        except self._pulsar.PulsarException as failure:
            raise errors.ConnectFailed(f"requesting the end of {topic}: {failure}") from failure

    def _entry(self, topic: str, position: Position, messages: list[Any]) -> Entry:
        first = messages[0]
        try:
            return Entry(
                position,
                first.producer_name(),
                first.publish_timestamp(),
                [_message(each) for each in messages],
                _schema_version(first),
                self._encryption(first),
                first_chunk=_first_chunk(first),
            )
        except (ValueError, errors.LayerError) as failure:  # UnicodeDecodeError is one
            raise errors.Corrupt(f"{topic}: message at {position} cannot be taken over: {failure}") from failure

    def _encryption(self, message: Any) -> EncryptionInfo | None:
        context = message.encryption_context()
        if context is None or not context.is_decryption_failed():
            return None
        packed = context.compression_type() != self._pulsar.CompressionType.NONE
        if packed or context.batch_size() > 0:
            what = f"compressed with {context.compression_type().name}" if packed else "in a batch"
            raise errors.Refused(
                f"it is encrypted, and {what} inside, which nothing here can read: give the private key, and it is "
                "stored decrypted"
            )
        keys = tuple(EncryptedKey(key.key, key.value, dict(key.metadata)) for key in context.keys())  # noqa: SIM118 - no dict
        return EncryptionInfo(keys, context.param(), context.algorithm())


def _message(message: Any) -> PulsarMessage:
    return PulsarMessage(
        None if message.has_null_value() else message.data(),
        message.partition_key(),
        message.ordering_key(),
        dict(message.properties()),
        message.event_timestamp(),
        _sequence_id(message),
    )


def _sequence_id(message: Any) -> int:
    """The sequence id in `Message(prod=NAME, seq=NUMBER, ...)`, since no method returns it; -1 in any other form."""
    text, before = str(message._message), f"Message(prod={message.producer_name()}, seq="
    number = text[len(before) :].partition(",")[0]
    return int(number) if text.startswith(before) and number.isdigit() else -1


def _position(message: Any) -> Position:
    found = message.message_id()
    return Position(found.ledger_id(), found.entry_id())


def _first_chunk(message: Any) -> Position | None:
    found = decode_message_id(message.message_id().serialize()).first_chunk
    return None if found is None else Position(*found)


def _messages_of(message: Any) -> int:
    found = message.message_id()
    if found.batch_index() == _NO_BATCH:
        return 1
    return max(1, decode_message_id(found.serialize()).batch_size)


def _schema_version(message: Any) -> int:
    """Pulsar's number; the client's own method for it fails on some."""
    return int(message._message.int_schema_version())
