"""Processes: fork, Ctrl-C, leaving without close, dying, and no broker at all."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from tests.programs import a_program, run_program
from tests.seeds import first_of
from tests.steps import SHARED, Unique, nothing_comes, payloads, receive, send, send_fast
from tests.waiting import until


def test_flushed_messages_and_acks_outlive_an_exit_without_close(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    code, out, err = run_program(
        """
        client = pulsar.Client(sys.argv[1])
        producer = client.create_producer(sys.argv[2], block_if_queue_full=True)
        for number in range(500):
            producer.send_async(str(number).encode(), None)
        producer.flush()
        consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.Shared,
                                    initial_position=pulsar.InitialPosition.Earliest)
        for number in range(500):
            message = consumer.receive(15000)
            if number % 2:
                consumer.acknowledge(message)
        print("done")
        """,
        service_url, topic,
    )  # fmt: skip
    assert (code, out) == (0, "done\n"), err
    consumer = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(consumer, 250)) == [str(n) for n in range(0, 500, 2)]
    assert nothing_comes(consumer)


def test_an_exit_with_nothing_read_does_not_hang(service_url: str, unique: Unique) -> None:
    code, _, err = run_program(
        """
        client = pulsar.Client(sys.argv[1])
        consumer = client.subscribe(sys.argv[2], "s", message_listener=lambda c, m: None)
        client.create_producer(sys.argv[2])
        """,
        service_url, unique(), timeout_s=40,
    )  # fmt: skip
    assert code == 0, err


def test_an_uncaught_error_ends_the_program(service_url: str, unique: Unique) -> None:
    code, _, err = run_program(
        """
        client = pulsar.Client(sys.argv[1])
        consumer = client.subscribe(sys.argv[2], "s")
        raise RuntimeError("boom")
        """,
        service_url, unique(), timeout_s=40,
    )  # fmt: skip
    assert code == 1
    assert "boom" in err


def test_sigint_in_receive_raises_interrupted(service_url: str, unique: Unique) -> None:
    code, out, err = run_program(
        """
        import threading
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit it ignored
        client = pulsar.Client(sys.argv[1])
        consumer = client.subscribe(sys.argv[2], "s")

        def press_ctrl_c():
            pause = threading.Event()
            while not consumer._inbox._waiting:
                pause.wait(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press_ctrl_c, daemon=True).start()
        try:
            consumer.receive()
        except pulsar.Interrupted as error:
            print("interrupted", isinstance(error, pulsar.PulsarException), flush=True)
        client.close()
        """,
        service_url,
        unique(),
        timeout_s=40,
    )
    assert code == 0, err
    assert out == "interrupted True\n"


@pytest.mark.parametrize("number", first_of(1, [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_closes_in_good_order_and_then_goes_where_it_went(
    client: pulsar.Client, service_url: str, unique: Unique, number: signal.Signals
) -> None:
    topic = unique()
    process = a_program(
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: (print("former", flush=True), os._exit(3)))
        client = pulsar.Client(sys.argv[1], ack_persist_interval_ms=60_000)
        client.close_on_signals()
        consumer = client.subscribe(sys.argv[2], "s", initial_position=pulsar.InitialPosition.Earliest)
        consumer.acknowledge(consumer.receive(60000))
        print("ready", flush=True)
        try:
            while True:
                consumer.receive()
        except pulsar.PulsarException:
            signal.pause()
        """,
        service_url, topic,
    )  # fmt: skip
    send(client, topic, 2)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "former\n"), err
    assert payloads(receive(client.subscribe(topic, "s"), 1)) == ["1"]


def test_a_forked_child_with_its_own_client_works_and_the_parent_goes_on(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    """In a process of its own: pytest's is no place to fork."""
    topic = unique()
    code, out, err = run_program(
        """
        url, topic = sys.argv[1:]
        client = pulsar.Client(url)
        producer = client.create_producer(topic)
        consumer = client.subscribe(topic, "parent", initial_position=pulsar.InitialPosition.Earliest)
        producer.send(b"before")
        assert consumer.receive(15000).data() == b"before"
        child = os.fork()
        if child == 0:
            mine = pulsar.Client(url)
            mine.create_producer(topic).send(b"child")
            own = mine.subscribe(topic, "child", initial_position=pulsar.InitialPosition.Earliest)
            found = [own.receive(15000).data() for _ in range(2)]
            mine.close()
            sys.exit(0 if found == [b"before", b"child"] else 3)
        _, status = os.waitpid(child, 0)
        print("child", os.waitstatus_to_exitcode(status))
        producer.send(b"after")
        print([consumer.receive(15000).data() for _ in range(2)])
        client.close()
        """,
        service_url, topic, timeout_s=80,
    )  # fmt: skip
    assert code == 0, err
    assert out == "child 0\n[b'child', b'after']\n"


def test_multiprocessing_by_fork_works(service_url: str, unique: Unique) -> None:
    code, out, err = run_program(
        """
        import multiprocessing
        url, topic = sys.argv[1:]
        client = pulsar.Client(url)
        producer = client.create_producer(topic)
        producer.send(b"parent")

        def work(number):
            mine = pulsar.Client(url)
            mine.create_producer(topic).send(str(number).encode())
            mine.close()

        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(number,)) for number in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join(40)
        print([child.exitcode for child in children])
        print(producer.send(b"end").entry_id())
        client.close()
        """,
        service_url, unique(), timeout_s=80,
    )  # fmt: skip
    assert code == 0, err
    assert out == "[0, 0, 0]\n4\n"


@pytest.mark.parametrize("use", ["create_producer", "subscribe", "get_topic_partitions"])
def test_an_unreachable_address_is_a_connect_error_in_time(use: str) -> None:
    """At once where the connection is refused, whatever the time-outs are."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    client = pulsar.Client(f"kafka://127.0.0.1:{port}", connection_timeout_ms=1000)
    calls: dict[str, Callable[[], object]] = {
        "create_producer": lambda: client.create_producer("t"),
        "subscribe": lambda: client.subscribe("t", "s"),
        "get_topic_partitions": lambda: client.get_topic_partitions("t"),
    }
    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(pulsar.ConnectError):
            calls[use]()
        assert time.monotonic() - started < 20, "some 0.6 s on a quiet machine; the operation's time-out is 30 s"
    client.close()


@pytest.mark.kills
def test_acks_of_a_consumer_that_died_are_kept_with_segments_and_a_forgotten_group(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    """The checkpoint that is left must still be readable: what it refers to may not have been tombstoned."""
    topic = unique()
    with AdminClient(service_url) as admin:
        admin.create_topic(topic, entries_per_ledger=2)
        send_fast(client, topic, 10_000)
        code, out, err = run_program(
            """
            client = pulsar.Client(sys.argv[1], ack_persist_interval_ms=200)
            consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.Shared,
                                        initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=10000)
            messages = [consumer.receive(15000) for _ in range(10_000)]
            for message in messages[1:9000:2]:
                consumer.acknowledge(message)
            consumer.flush()
            from pulsar_on_kafka.broker.cursor.store import CursorStore
            import threading
            written = threading.Event()
            write = CursorStore.write_checkpoints
            def noticed(*arguments):
                write(*arguments)
                written.set()
            CursorStore.write_checkpoints = noticed
            member = consumer._member
            def force():
                for owned in member._owned.values():
                    owned.saves.last_checkpoint_s = -1e9
            member.run(force).result(15)
            consumer.acknowledge(messages[9001])
            assert written.wait(20)
            for message in messages[9003:9600:100]:
                consumer.acknowledge(message, wait=True)
            print("acked", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """,
            service_url, topic,
        )  # fmt: skip
        assert (code, out) == (-signal.SIGKILL, "acked\n"), err
        group = admin.subscription_stats(topic, "s").group
        deadline = Deadline.after(30)
        until(lambda: not admin.node.admin.describe_group(group, deadline).members, "the dead member to be thrown out")
        assert admin.node.admin.delete_group(group, deadline)
        assert admin.subscription_stats(topic, "s").partitions[0].individually_deleted in range(4500, 4508)
        consumer = client.subscribe(topic, "s", SHARED, receiver_queue_size=10_000)
        assert [int(text) for text in payloads(receive(consumer, 4500))] == list(range(0, 9000, 2))


def test_the_environment_says_nothing_secret(service_url: str) -> None:
    client = pulsar.Client(service_url, kafka_config={"sasl.password": "hunter2"})
    assert not re.search("hunter2", repr(client) + repr(client._settings))
    client.close()
    assert "hunter2" not in os.environ.values()


@pytest.mark.kills
def test_exclusive_is_exclusive_among_processes_and_free_after_death(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    process = a_program(
        """
        client = pulsar.Client(sys.argv[1])
        consumer = client.subscribe(sys.argv[2], "s", initial_position=pulsar.InitialPosition.Earliest)
        for _ in range(3):
            message = consumer.receive(15000)
        consumer.acknowledge_cumulative(message)
        consumer.flush()
        print("ready", flush=True)
        sys.stdin.read()
        """,
        service_url, topic,
    )  # fmt: skip
    try:
        send(client, topic, 5)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(pulsar.ConsumerBusy, match="exclusively"):
            client.subscribe(topic, "s")
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "s", SHARED)
    finally:
        process.kill()
        process.communicate(timeout=20)
    consumer = client.subscribe(topic, "s")
    assert payloads(receive(consumer, 2)) == ["3", "4"]
    assert nothing_comes(consumer)
