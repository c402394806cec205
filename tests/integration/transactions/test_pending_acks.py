"""Acknowledgements in transactions, from the consumer to the cursor, on a real broker."""

from __future__ import annotations

import asyncio

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio as pulsar_asyncio
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka_mapping.state.state_keys import CursorTakeoverKey
from tests.integration.pending_ack_support import begin, pending_acks_on_record
from tests.integration.transaction_support import PATIENCE_S
from tests.steps import EARLIEST, EXCLUSIVE, KEY_SHARED, SHARED, Unique, nothing_comes, payloads, receive, send
from tests.waiting import until


def received(
    client: pulsar.Client, unique: Unique, count: int, kind: pulsar.ConsumerType = SHARED
) -> tuple[str, pulsar.Consumer, list[pulsar.Message]]:
    """A topic of `count` messages, "0" and so on, and a consumer of subscription "s" with all of them in its hands."""
    topic = unique()
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST)
    send(client, topic, count)
    return topic, consumer, receive(consumer, count)


def is_clean(bootstrap: str, topic: str) -> bool:
    return all(isinstance(key, CursorTakeoverKey) for key in pending_acks_on_record(bootstrap, topic))


# What commit and abort do ---------------------------------------------------------------------------------------------


def test_cumulative_acknowledgements(client: pulsar.Client, unique: Unique) -> None:
    topic, consumer, messages = received(client, unique, 6, EXCLUSIVE)
    dropped = begin(client)
    consumer.acknowledge_cumulative(messages[3], txn=dropped)
    consumer.redeliver_unacknowledged_messages()
    assert payloads(receive(consumer, 2)) == ["4", "5"]
    dropped.abort()
    again = receive(consumer, 6)
    assert payloads(again) == ["0", "1", "2", "3", "4", "5"]
    kept = begin(client)
    consumer.acknowledge_cumulative(again[1], txn=kept)
    consumer.acknowledge_cumulative(again[3], txn=kept)
    kept.commit()
    consumer.close()
    assert payloads(receive(client.subscribe(topic, "s", EXCLUSIVE), 2)) == ["4", "5"]


def test_keys_go_on_behind_what_is_held(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", KEY_SHARED, initial_position=EARLIEST)
    producer = client.create_producer(topic)
    for number in range(3):
        producer.send(str(number).encode(), partition_key="k")
    messages = receive(consumer, 3)
    txn = begin(client)
    consumer.acknowledge(messages[0], txn=txn)
    consumer.close()
    other = client.subscribe(topic, "s", KEY_SHARED)
    assert payloads(receive(other, 2)) == ["1", "2"]
    txn.abort()
    assert payloads(receive(other, 1)) == ["0"]


def test_a_chunked_message_is_held_with_all_its_chunks(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    payload = b"x" * 2_500_000
    client.create_producer(topic, chunking_enabled=True).send(payload)
    txn = begin(client)
    consumer.acknowledge(consumer.receive(60_000), txn=txn)
    consumer.close()
    second = client.subscribe(topic, "s", SHARED)
    assert nothing_comes(second)
    txn.abort()
    message = second.receive(60_000)
    assert message.data() == payload
    kept = begin(client)
    second.acknowledge(message, txn=kept)
    kept.commit()
    second.close()
    assert nothing_comes(client.subscribe(topic, "s", SHARED))


# Conflicts ------------------------------------------------------------------------------------------------------------


def test_an_id_that_names_nothing(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    ids = send(client, topic, 1)
    receive(consumer, 1)
    beyond = pulsar.MessageId(ids[0].partition(), ids[0].ledger_id(), ids[0].entry_id() + 7, -1)
    txn = begin(client)
    with pytest.raises(pulsar.exceptions.NotAllowedError):
        consumer.acknowledge(beyond, txn=txn)
    with pytest.raises(TypeError):
        consumer.acknowledge(ids[0], txn="txn")  # type: ignore[arg-type]


# Owners come and go ---------------------------------------------------------------------------------------------------


def test_nothing_stays_on_record_of_an_idle_subscription(client: pulsar.Client, bootstrap: str, unique: Unique) -> None:
    topic, consumer, messages = received(client, unique, 3)
    kept, dropped = begin(client), begin(client)
    consumer.acknowledge(messages[0], txn=kept)
    consumer.acknowledge(messages[1], txn=dropped)
    assert not is_clean(bootstrap, topic)
    kept.commit()
    dropped.abort()
    until(lambda: is_clean(bootstrap, topic), "the state topic to be clean")


def test_a_seek_without_an_owner_comes_after_what_was_committed(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, consumer, messages = received(client, unique, 3)
    kept, held = begin(client), begin(client)
    consumer.acknowledge(messages[0], txn=kept)
    consumer.acknowledge(messages[1], txn=held)
    consumer.close()
    kept.commit()
    admin.reset_cursor(topic, "s", message_id=pulsar.MessageId.earliest)
    again = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(again, 2)) == ["0", "2"]
    held.abort()
    assert payloads(receive(again, 1)) == ["1"]


def test_a_subscription_made_anew_knows_nothing(client: pulsar.Client, unique: Unique) -> None:
    topic, consumer, messages = received(client, unique, 2)
    txn = begin(client)
    consumer.acknowledge(messages[0], txn=txn)
    consumer.unsubscribe()
    anew = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    messages = receive(anew, 2)
    assert payloads(messages) == ["0", "1"]
    txn.commit()
    other = begin(client)
    anew.acknowledge(messages[0], txn=other)
    other.commit()
    anew.close()
    assert payloads(receive(client.subscribe(topic, "s", SHARED), 1)) == ["1"]


def test_asyncio_acknowledges_in_transactions(service_url: str, unique: Unique) -> None:
    topic = unique()

    async def main() -> None:
        client = pulsar_asyncio.Client(service_url, enable_transaction=True)
        try:
            producer = await client.create_producer(topic)
            for number in range(82):
                await producer.send(str(number).encode())
            consumer = await client.subscribe(topic, "s", EXCLUSIVE, initial_position=EARLIEST)
            first, second, *others = [await asyncio.wait_for(consumer.receive(), PATIENCE_S) for _ in range(82)]
            others, more = others[:40], others[40:]
            async with await client.new_transaction() as together:  # more than there are threads
                await asyncio.gather(*(consumer.acknowledge(each, txn=together) for each in others))
                with pytest.raises(pulsar_asyncio.PulsarException) as conflict:
                    await consumer.acknowledge(others[0], txn=await client.new_transaction())
                assert conflict.value.error() == pulsar.Result.TransactionConflict
            ended = await client.new_transaction()  # has all that was asked for before its commit was
            await asyncio.gather(*(consumer.acknowledge(each, txn=ended) for each in more), ended.commit())
            async with await client.new_transaction() as kept:
                await consumer.acknowledge_cumulative(first, txn=kept)
            dropped = await client.new_transaction()
            await consumer.acknowledge(second, txn=dropped)
            await dropped.abort()
            await consumer.close()
            consumer = await client.subscribe(topic, "s", EXCLUSIVE)
            message = await asyncio.wait_for(consumer.receive(), PATIENCE_S)
            assert message.data() == b"1"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.receive(), 1.0)
        finally:
            client.shutdown()

    asyncio.run(main())
