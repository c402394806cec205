"""Public calls from where the package itself is at work: in a send callback, a message listener, a signal handler, a
logging handler. Each returns or raises soon, and no other producer of the process stands still."""

from __future__ import annotations

import pytest

from tests.programs import run_program
from tests.seeds import first_of
from tests.steps import Unique

pytestmark = pytest.mark.kafka

PROGRAM = """
import logging, os, signal, sys, threading, time

import pulsar_on_kafka as pulsar

url, topic, place = sys.argv[1:4]
SHARED, EARLIEST = pulsar.ConsumerType.Shared, pulsar.InitialPosition.Earliest
client = pulsar.Client(url)
other = client.create_producer(topic + "-other")
wrong = []


class Scene:
    "A producer and a consumer with messages, on which each call is tried once."

    def __init__(self, number):
        self.client = pulsar.Client(url, operation_timeout_seconds=10)
        self.batching = number % 2 == 1
        self.producer = self.client.create_producer(
            f"{topic}-{number}", batching_enabled=self.batching, block_if_queue_full=True, max_pending_messages=500)
        for each in range(5):
            self.producer.send_async(b"%d" % each, None)
        self.producer.flush()
        self.consumer = self.client.subscribe(
            f"{topic}-{number}", "s", consumer_type=SHARED, initial_position=EARLIEST)
        self.message = self.consumer.receive(60_000)


CALLS = {
    "send": lambda scene: scene.producer.send(b"again"),
    "send_async": lambda scene: scene.producer.send_async(b"again", None),
    "flush": lambda scene: scene.producer.flush(),
    "last_sequence_id": lambda scene: scene.producer.last_sequence_id(),
    "receive": lambda scene: scene.consumer.receive(1000),
    "acknowledge": lambda scene: scene.consumer.acknowledge(scene.message),
    "negative_acknowledge": lambda scene: scene.consumer.negative_acknowledge(scene.message),
    "redeliver": lambda scene: scene.consumer.redeliver_unacknowledged_messages(),
    "seek": lambda scene: scene.consumer.seek(pulsar.MessageId.earliest),
    "create_producer": lambda scene: scene.client.create_producer(topic + "-more"),
    "subscribe": lambda scene: scene.client.subscribe(topic + "-more", "s", consumer_type=SHARED),
    "close producer": lambda scene: scene.producer.close(),
    "close consumer": lambda scene: scene.consumer.close(),
    "close client": lambda scene: scene.client.close(),
}


def in_send_callback(scene, call):
    scene.producer.send_async(b"first", lambda result, message_id: call())
    if scene.batching:
        return
    for _ in range(600):  # more than may be under way
        scene.producer.send_async(b"more", lambda result, message_id: None)


def in_listener(scene, call):
    scene.listening = scene.client.subscribe(
        f"{topic}-listened", "s", consumer_type=SHARED, message_listener=lambda consumer, message: call())
    other_topic = scene.client.create_producer(f"{topic}-listened")
    other_topic.send(b"heard")


def in_logging_handler(scene, call):
    class Handler(logging.Handler):
        def emit(self, record):
            logging.getLogger("pulsar_on_kafka").removeHandler(self)
            call()

    def fail(result, message_id):
        raise ValueError("said by the package's own thread")

    logging.getLogger("pulsar_on_kafka").addHandler(Handler())
    scene.producer.send_async(b"first", fail)


def in_signal_handler(scene, call):
    signal.signal(signal.SIGUSR1, lambda number, frame: call())
    busy = client.create_producer(
        topic + "-busy", block_if_queue_full=True, max_pending_messages=2000, batching_enabled=scene.batching)
    idle = client.subscribe(topic + "-idle", "s" + str(time.monotonic_ns()))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    while not scene.done.is_set():
        try:
            if place == "signal while receiving":
                idle.receive(300)
            elif place == "signal while sending":
                scene.producer.send(b"x")
            else:
                for _ in range(1000):
                    scene.producer.send_async(b"x" * 100, None)
                scene.producer.flush()
        except pulsar.PulsarException:
            time.sleep(0.05)  # closed by the handler
    idle.close(), busy.close()


PLACES = {
    "send callback": in_send_callback,
    "message listener": in_listener,
    "logging handler": in_logging_handler,
    "signal while receiving": in_signal_handler,
    "signal while sending": in_signal_handler,
    "signal while flushing": in_signal_handler,
}


def look_on(scene, what):
    "In a thread, as the main one may hang."
    if not scene.done.wait(SOON_S):
        print(f"{place}: {what} hangs", flush=True)
        import faulthandler
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)


SOON_S = 5 * 6  # a busy machine's
for number, (what, made) in enumerate(CALLS.items()):
    scene = Scene(number)
    scene.done = threading.Event()

    def call(scene=scene, made=made, what=what):
        if scene.done.is_set():
            return
        try:
            made(scene)
            said = "returned"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if not isinstance(error, pulsar.PulsarException):
                wrong.append(f"{what}: {said}")
        print(f"{place}: {what}: {said}", flush=True)
        scene.done.set()

    watch = threading.Thread(target=look_on, args=(scene, what), daemon=True)
    watch.start()
    PLACES[place](scene, call)
    watch.join()
    went_on = threading.Event()
    other.send_async(b"x", lambda result, message_id: went_on.set())
    if not went_on.wait(SOON_S):
        wrong.append(f"after {what} another producer stands still")
    try:
        scene.client.close()
    except pulsar.AlreadyClosed:
        pass
client.close()
print("wrong:", wrong)
sys.exit(bool(wrong))
"""
PLACES = (
    "send callback",
    "signal while flushing",
    "logging handler",
    "message listener",
    "signal while receiving",
    "signal while sending",
)

SERVICE = """
import os, signal, sys, threading, time

import pulsar_on_kafka as pulsar

client = pulsar.Client(sys.argv[1])
producer = client.create_producer(
    sys.argv[2], block_if_queue_full=True, max_pending_messages=5000, batching_enabled=sys.argv[3] == "batches")
heard = [0]


def stop(number, frame):
    try:
        producer.flush()
        producer.close()
        said = "closed"
    except pulsar.NotAllowedError as refused:
        said = f"refused: {refused}"
    print(said, flush=True)
    os._exit(7)


def sent(result, message_id):
    heard[0] += 1


signal.signal(signal.SIGTERM, stop)
threading.Timer(0.5 + float(sys.argv[4]), lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
while True:
    for n in range(3000):
        producer.send_async(b"x" * 500, sent if n % 3 else None, partition_key="k" if sys.argv[3] == "keyed" else None)
    producer.flush()
"""


@pytest.mark.long
@pytest.mark.parametrize("way", ["records", "keyed", "batches"])
def test_a_service_that_sends_ends_when_it_is_asked_to(service_url: str, unique: Unique, way: str) -> None:
    for number in range(7):
        status, said, errors = run_program(SERVICE, service_url, unique(), way, str(0.03 * number))
        assert status == 7, said + errors
        assert "closed" in said or way == "batches", said  # a batch that is being made cannot be interrupted


@pytest.mark.parametrize("place", first_of(3, PLACES))
def test_every_public_call_returns_or_raises(service_url: str, unique: Unique, place: str) -> None:
    status, said, errors = run_program(PROGRAM, service_url, unique(), place, timeout_s=170)
    assert status == 0, said + errors


CALLBACK_THAT_SENDS = """
import os, sys, threading, time

import pulsar_on_kafka as pulsar

url, topic, way = sys.argv[1:4]
client = pulsar.Client(url)
producer = client.create_producer(
    topic,
    batching_enabled=way == "batches",
    batching_max_publish_delay_ms=1,
    access_mode=pulsar.ProducerAccessMode.Exclusive if way == "exclusive" else pulsar.ProducerAccessMode.Shared,
)
SENDS = 100
answered, busy = [], threading.Event()


def sent(result, message_id):
    busy.set()
    answered.append(producer.send(b"again"))
    busy.clear()


until = time.monotonic() + 60
while len(answered) < SENDS and time.monotonic() < until:
    if not busy.is_set():  # otherwise the answer depends on the package's own threads alone
        producer.send_async(b"x", sent)
    time.sleep(0.0005)
print(len(answered), "sends inside of callbacks were answered", flush=True)
os._exit(len(answered) < SENDS)
"""


@pytest.mark.parametrize("way", ["records", "batches", "exclusive"])
def test_a_callback_sends_and_waits_for_the_answer(service_url: str, unique: Unique, way: str) -> None:
    status, said, errors = run_program(CALLBACK_THAT_SENDS, service_url, unique(), way, timeout_s=100)
    assert status == 0, said + errors
