"""A forked child: it is refused what its parent opened, at once, and opens a client of its own. Its parent goes on."""

from __future__ import annotations

import pytest

from tests.programs import run_program
from tests.steps import Unique

pytestmark = pytest.mark.kafka

PROGRAM = """
import gc, multiprocessing, os, signal, sys, threading, time, traceback

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import forks

url, topic = sys.argv[1:3]
SHARED, EARLIEST = pulsar.ConsumerType.Shared, pulsar.InitialPosition.Earliest
client = pulsar.Client(url, enable_transaction=True)
producer = client.create_producer(topic)
opened = {
    "client": client,
    "producer": producer,
    "batching": client.create_producer(topic, batching_enabled=True, block_if_queue_full=True),
    "consumer": client.subscribe(topic, "s", consumer_type=SHARED, initial_position=EARLIEST),
    "several": client.subscribe([topic, topic + "-other"], "s", consumer_type=SHARED),
    "reader": client.create_reader(topic, pulsar.MessageId.earliest),
    "view": client.create_table_view(topic),
    "txn": client.new_transaction(60_000),
    "admin": AdminClient(url),
    "asyncio": pulsar_on_kafka.asyncio.Client(url),
}
producer.send(b"parent", partition_key="k")
message = opened["consumer"].receive(60_000)
BOUND = (  # a program may have kept these
    (opened["producer"].send_async, b"x", None),
    (opened["batching"].send_async, b"x", None),
    (opened["producer"].send, b"x"),
    (opened["consumer"].acknowledge, message),
    (opened["consumer"].receive,),
    (opened["reader"].read_next,),
    (opened["view"].get, "k"),
    (opened["txn"].commit,),
    (opened["admin"].topic_stats, topic),
    (client.close,),
)


def refused(what, call):
    try:
        call()
    except pulsar.AlreadyClosed as error:
        if "open a Client in each process" not in str(error):
            raise
    else:
        raise AssertionError(f"{what} is not refused in the child")


def look_at_inherited():
    for name, each in opened.items():
        methods = [method for method in dir(type(each)) if not method.startswith("_")]
        assert len(methods) > 3, methods
        for method in methods:
            refused(f"{name}.{method}", lambda: getattr(each, method))
        assert "parent" in repr(each) and isinstance(each, type(each).__mro__[1])
    for call, *arguments in BOUND:
        refused(call, lambda: call(*arguments))
    try:
        with opened["admin"]:
            raise KeyError("of the block")
    except KeyError:
        pass
    assert message.data() == b"parent"
    opened.clear()
    gc.collect()


def open_another():
    with_one = pulsar.Client(url)
    mine = with_one.create_producer(topic + "-child")
    mine.send(b"%d" % os.getpid())
    consumer = with_one.subscribe(topic + "-child", f"s-{os.getpid()}", initial_position=EARLIEST)
    while consumer.receive(20_000).data() != b"%d" % os.getpid():
        pass
    with_one.close()


def child(*steps):
    signal.alarm(60)  # its end tells the parent that it hangs
    try:
        for step in steps:
            begun = time.monotonic()
            step()
            print(step.__name__, "took %.2f s" % (time.monotonic() - begun), flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def busy_sending():
    while running:
        for _ in range(500):
            opened["producer"].send_async(b"x", lambda result, message_id: None)
            opened["batching"].send_async(b"x", None)
        opened["producer"].flush()


def busy_receiving():
    while running:
        try:
            opened["consumer"].acknowledge(opened["consumer"].receive(500))
        except pulsar.Timeout:
            pass


def holding(lock):
    with lock:
        held.release()
        let_go.wait()


running = True
busy = [threading.Thread(target=each) for each in (busy_sending, busy_receiving)]
for each in busy:
    each.start()
wrong = 0
for number in range(5):
    # Every second time a thread, which the child has not, holds each lock that the child shares with its parent.
    locks = list(forks._LOCKS) if number % 2 else []
    held, let_go = threading.Semaphore(0), threading.Event()
    for lock in locks:
        threading.Thread(target=holding, args=(lock,)).start()
    for _ in locks:
        held.acquire()
    process = os.fork()
    if process == 0:
        child(look_at_inherited, *([open_another] if number < 2 else []))
        sys.exit(0)  # an interpreter that ends as it should
    let_go.set()
    ended = os.waitpid(process, 0)[1]
    if ended:
        wrong += 1
        print("child", number, "ended with", os.waitstatus_to_exitcode(ended), flush=True)
worker = multiprocessing.get_context("fork").Process(target=child, args=(look_at_inherited, open_another))
worker.start()
worker.join()
wrong += worker.exitcode != 0
running = False
for each in busy:
    each.join()
producer.send(b"parent")
assert opened["admin"].topic_stats(topic).partitions == 1
opened["txn"].abort()
for each in ("reader", "view", "admin"):
    opened[each].close()
client.close()
sys.exit(wrong)
"""


def test_a_forked_child_is_refused_what_its_parent_opened(service_url: str, unique: Unique) -> None:
    status, said, errors = run_program(PROGRAM, service_url, unique(), timeout_s=170)
    assert status == 0, said + errors
    assert "AlreadyClosed" not in errors, errors  # nothing of the package itself met it
