"""`MessageId`: the official class around a `NativeMessageId`. They compare with one another and are unhashable, as
officially."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId


class MessageId:
    """The position of a message. Source: `pulsar.MessageId`."""

    earliest: ClassVar[ReceivedId] = cast("ReceivedId", NativeMessageId.earliest)
    latest: ClassVar[ReceivedId] = cast("ReceivedId", NativeMessageId.latest)

    def __init__(self, partition: int = -1, ledger_id: int = -1, entry_id: int = -1, batch_index: int = -1) -> None:
        self._msg_id = NativeMessageId(partition, ledger_id, entry_id, batch_index)

    def ledger_id(self) -> int:
        """The ledger."""
        return self._msg_id.ledger_id()

    def entry_id(self) -> int:
        """The entry of the ledger."""
        return self._msg_id.entry_id()

    def batch_index(self) -> int:
        """The index in the batch; -1 outside a batch."""
        return self._msg_id.batch_index()

    def partition(self) -> int:
        """The partition; -1 on a topic without partitions."""
        return self._msg_id.partition()

    def serialize(self) -> bytes:
        """Bytes from which `deserialize` makes an equal id."""
        return self._msg_id.serialize()

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> ReceivedId:
        """The id that `serialize` wrote; `topic` names the topic it belongs to.

        Raises:
            ValueError: the bytes are no message id.
        """
        made = NativeMessageId.deserialize(message_id_bytes)
        if topic is not None:
            made.topic_name(topic)
        return cast("ReceivedId", made)

    @classmethod
    def wrap(cls, msg_id: NativeMessageId) -> MessageId:
        """The id of the extension's one, as officially."""
        made = cls()
        made._msg_id = msg_id
        return made

    def __eq__(self, other: object) -> bool:
        return self._msg_id == other

    def __lt__(self, other: object) -> bool:
        return self._msg_id < other

    def __le__(self, other: object) -> bool:
        return self._msg_id <= other

    def __gt__(self, other: object) -> bool:
        return self._msg_id > other

    def __ge__(self, other: object) -> bool:
        return self._msg_id >= other

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self._msg_id)

    __repr__ = __str__


if TYPE_CHECKING:

    class ReceivedId(NativeMessageId, MessageId):  # type: ignore[misc]
        """An id that the client gives to its caller: a native one (`_pulsar.MessageId`), as officially.

        The official client does not declare types, and both classes have the same methods. So a program may declare
        such an id as either of them. `isinstance` distinguishes the two, as officially.
        """

else:
    ReceivedId = NativeMessageId


def native(message_id: object) -> NativeMessageId | None:
    """The native id behind either class; None for anything else."""
    if isinstance(message_id, NativeMessageId):
        return message_id
    if isinstance(message_id, MessageId):
        return message_id._msg_id
    return None
