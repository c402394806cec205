"""Public calls from where the package itself is at work (a send callback, a message listener, a signal handler, a
logging handler), in a forked child, and while another thread closes the client. Each returns or raises within five
seconds, and no other producer of the process stands still. Under gevent's patching of threads no client opens."""

from __future__ import annotations

import pytest

from tests.programs import run_program
from tests.seeds import first_of
from tests.steps import Unique

pytestmark = pytest.mark.kafka

PROGRAM = """
import logging, os, signal, sys, threading, time
from contextlib import suppress

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient

url, topic, place = sys.argv[1:4]
SHARED, EARLIEST = pulsar.ConsumerType.Shared, pulsar.InitialPosition.Earliest
NOW_S = 5 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # what a machine with nothing else to do takes 5 s for
client = pulsar.Client(url)
other = client.create_producer(topic + "-other")
wrong = []


class Scene:
    "What a program has open on one client."

    def __init__(self, number):
        self.topic = f"{topic}-{number}"
        self.client = pulsar.Client(url, operation_timeout_seconds=10, enable_transaction=True)
        self.batching = number % 2 == 1
        self.producer = self.client.create_producer(
            self.topic, batching_enabled=self.batching, block_if_queue_full=True, max_pending_messages=500)
        for each in range(5):
            self.producer.send_async(b"%d" % each, None)
        self.producer.flush()
        self.consumer = self.client.subscribe(
            self.topic, "s", consumer_type=SHARED, initial_position=EARLIEST)
        self.message = self.consumer.receive(60_000)
        self.reader = self.client.create_reader(self.topic, pulsar.MessageId.earliest)
        self.view = self.client.create_table_view(self.topic)
        self.admin = AdminClient(url, operation_timeout_seconds=10)
        self.transaction = self.client.new_transaction(600_000)


CALLS = {
    "send": lambda scene: scene.producer.send(b"again"),
    "send_async": lambda scene: scene.producer.send_async(b"again", None),
    "send in a transaction": lambda scene: scene.producer.send(b"again", txn=scene.transaction),
    "flush": lambda scene: scene.producer.flush(),
    "last_sequence_id": lambda scene: scene.producer.last_sequence_id(),
    "receive": lambda scene: scene.consumer.receive(1000),
    "receive_async": lambda scene: scene.consumer.receive_async(lambda result, message: None),
    "acknowledge": lambda scene: scene.consumer.acknowledge(scene.message),
    "acknowledge and wait": lambda scene: scene.consumer.acknowledge(scene.message, wait=True),
    "negative_acknowledge": lambda scene: scene.consumer.negative_acknowledge(scene.message),
    "redeliver": lambda scene: scene.consumer.redeliver_unacknowledged_messages(),
    "get_last_message_id": lambda scene: scene.consumer.get_last_message_id(),
    "seek": lambda scene: scene.consumer.seek(pulsar.MessageId.earliest),
    "read_next": lambda scene: scene.reader.read_next(1000),
    "has_message_available": lambda scene: scene.reader.has_message_available(),
    "seek reader": lambda scene: scene.reader.seek(pulsar.MessageId.earliest),
    "get": lambda scene: scene.view.get("key"),
    "topic_stats": lambda scene: scene.admin.topic_stats(scene.topic),
    "create_producer": lambda scene: scene.client.create_producer(scene.topic + "-more"),
    "create_reader": lambda scene: scene.client.create_reader(scene.topic, pulsar.MessageId.latest),
    "subscribe": lambda scene: scene.client.subscribe(scene.topic + "-more", "s", consumer_type=SHARED),
    "new_transaction": lambda scene: scene.client.new_transaction(60_000),
}
ENDS = {
    "commit": lambda scene: scene.transaction.commit(),
    "unsubscribe": lambda scene: scene.consumer.unsubscribe(),
    "close producer": lambda scene: scene.producer.close(),
    "close consumer": lambda scene: scene.consumer.close(),
    "close reader": lambda scene: scene.reader.close(),
    "close view": lambda scene: scene.view.close(),
    "close admin": lambda scene: scene.admin.close(),
    "close client": lambda scene: scene.client.close(),
}
"Of each scene one, at last."


class Trial:
    "One call, which is to return or to be refused soon."

    def __init__(self, scene, what, made):
        self.scene, self.what, self.made = scene, what, made
        self.began_s, self.said, self.done = None, "", threading.Event()

    def __call__(self):
        if self.began_s is None:
            self.play()
            self.done.set()

    def play(self):
        self.began_s = time.monotonic()
        try:
            self.made(self.scene)
            said = "returned"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if not isinstance(error, pulsar.PulsarException):
                wrong.append(f"{self.what}: {said}")
        if said != self.said:
            print(f"{place}: {self.what}: {time.monotonic() - self.began_s:.2f} s: {said}\\n", end="", flush=True)
        self.said = said

    def look_on(self):
        "In a thread, as the main one may hang. What has not begun waits for a message, or a signal."
        while not self.done.wait(0.5):
            if self.began_s is not None and time.monotonic() - self.began_s > NOW_S:
                hangs(self.what)


def hangs(what):
    print(f"{place}: {what} takes more than {NOW_S:.0f} s", flush=True)
    import faulthandler
    faulthandler.dump_traceback(all_threads=True)
    os._exit(1)


def in_send_callback(trial):
    scene = trial.scene
    scene.producer.send_async(b"first", lambda result, message_id: trial())
    if scene.batching:
        return
    with suppress(pulsar.AlreadyClosed):  # by the callback
        for _ in range(600):  # more than may be under way
            scene.producer.send_async(b"more", lambda result, message_id: None)


def in_listener(trial):
    scene = trial.scene
    name = f"{topic}-listened-{time.monotonic_ns()}"
    scene.listening = scene.client.subscribe(
        name, "s", consumer_type=SHARED, message_listener=lambda consumer, message: trial())
    client.create_producer(name).send(b"heard")


def in_logging_handler(trial):
    class Handler(logging.Handler):
        def emit(self, record):
            logging.getLogger("pulsar_on_kafka").removeHandler(self)
            trial()

    def fail(result, message_id):
        raise ValueError("said by the package's own thread")

    logging.getLogger("pulsar_on_kafka").addHandler(Handler())
    trial.scene.producer.send_async(b"first", fail)


def in_signal_handler(trial):
    scene = trial.scene
    signal.signal(signal.SIGUSR1, lambda number, frame: trial())
    idle = client.subscribe(topic + "-idle", "s" + str(time.monotonic_ns()))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    while not trial.done.is_set():
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
    idle.close()


PLACES = {
    "send callback": in_send_callback,
    "message listener": in_listener,
    "logging handler": in_logging_handler,
    "signal while receiving": in_signal_handler,
    "signal while sending": in_signal_handler,
    "signal while flushing": in_signal_handler,
}


def goes_on(after):
    went_on = threading.Event()
    other.send_async(b"x", lambda result, message_id: went_on.set())
    if not went_on.wait(NOW_S):
        wrong.append(f"after {after} another producer stands still")


def close(scene):
    try:
        scene.client.close()
    except pulsar.AlreadyClosed:
        pass
    try:
        scene.admin.close()
    except pulsar.AlreadyClosed:
        pass


def one_after_another():
    scenes = [Scene(0), Scene(1)]
    for number, (what, made) in enumerate({**CALLS, **ENDS}.items()):
        scene = scenes[number % 2] if what in CALLS else Scene(number)
        trial = Trial(scene, what, made)
        watch = threading.Thread(target=trial.look_on, daemon=True)
        watch.start()
        PLACES[place](trial)
        watch.join()
        goes_on(what)
        if scene not in scenes:
            close(scene)
    for scene in scenes:
        close(scene)


def while_closing():
    "All calls at once, again and again, until another thread has closed the client."
    for number in range(2):
        scene, closed = Scene(number), threading.Event()

        def again_and_again(trial):
            while not closed.is_set():
                trial.play()
                time.sleep(0.01)
            trial.play()
            trial.done.set()

        def end(trial):
            begin.wait()
            trial()

        begin = threading.Event()
        waiting = {
            "receive for ever": lambda scene: scene.consumer.receive(),
            "batch_receive": lambda scene: scene.consumer.batch_receive(),
            "read_next for ever": lambda scene: scene.reader.read_next(),
        }
        waits = [Trial(scene, what, made) for what, made in waiting.items()]
        calls = [Trial(scene, what, made) for what, made in CALLS.items()]
        ends = [Trial(scene, what, made) for what, made in ENDS.items() if number or what == "close client"]
        for trial in (*waits, *calls):
            threading.Thread(target=again_and_again, args=(trial,), daemon=True).start()
        for trial in ends:
            threading.Thread(target=end, args=(trial,), daemon=True).start()
        time.sleep(0.5)  # they are at it
        begin.set()
        from_s = time.monotonic()
        for trial in (*ends, *calls, *waits):
            if trial is calls[0]:
                closed.set()
            if not trial.done.wait(max(0.0, from_s + NOW_S - time.monotonic())):
                hangs(trial.what)
        goes_on("closing")
        close(scene)


def in_forked_child():
    for number in range(2):
        scene = Scene(number)
        child = os.fork()
        if child == 0:
            for what, made in {**CALLS, **ENDS}.items():
                trial = Trial(scene, what, made)
                threading.Thread(target=trial.look_on, daemon=True).start()
                trial.play()
                if not trial.said.startswith("AlreadyClosed"):
                    wrong.append(f"{what} in the child")
                trial.done.set()
            print("wrong in the child:", wrong, flush=True)
            os._exit(bool(wrong))
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            wrong.append("in the child")
        goes_on("a fork")
        close(scene)


{"while closing": while_closing, "forked child": in_forked_child}.get(place, one_after_another)()
client.close()
print("wrong:", wrong)
sys.exit(bool(wrong))
"""
PLACES = (
    "send callback",
    "signal while flushing",
    "while closing",
    "forked child",
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
    signal.alarm(30)  # as long as a message may take, and as Kubernetes waits
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


@pytest.mark.parametrize("way", first_of(0, ["records", "batches", "keyed"], later=2))
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


IN_ORDER = """
import os, sys, threading

import pulsar_on_kafka as pulsar

url, topic, way = sys.argv[1:4]
client = pulsar.Client(url)
producer = client.create_producer(
    topic,
    batching_enabled=way == "batches",
    batching_max_publish_delay_ms=1,
    access_mode=pulsar.ProducerAccessMode.Exclusive if way == "exclusive" else pulsar.ProducerAccessMode.Shared,
)
heard, early = [], 0
for number in range(300):
    for each in range(number % 3 + 1):
        producer.send_async(b"x", lambda result, message_id, number=number: heard.append(number))
    producer.send(b"y")
    early += heard.count(number) != number % 3 + 1
print(early, "sends returned before an earlier callback", flush=True)

# A callback that waits for what the sender has costs that a second, once.
has, done = threading.Lock(), threading.Event()
def needs(result, message_id):
    with has:
        done.set()
with has:
    producer.send_async(b"x", needs)
    producer.send(b"y")
done.wait()
client.close()
sys.exit(early > 0)
"""


@pytest.mark.parametrize("way", ["records", "batches", "exclusive"])
def test_callbacks_of_earlier_messages_come_before_a_send_returns(service_url: str, unique: Unique, way: str) -> None:
    status, said, errors = run_program(IN_ORDER, service_url, unique(), way, timeout_s=100)
    assert status == 0, said + errors


EACH_OTHER = """
import faulthandler, os, sys, threading

import pulsar_on_kafka as pulsar

url, topic, what, way = sys.argv[1:5]
faulthandler.dump_traceback_later(60, exit=True)
MODE = pulsar.ProducerAccessMode.Exclusive if way == "exclusive" else pulsar.ProducerAccessMode.Shared
# Each timeout has a Kafka producer of its own.
producers = [
    pulsar.Client(url).create_producer(
        f"{topic}-{number}", send_timeout_millis=30_000 + number, access_mode=MODE, max_pending_messages=20,
        block_if_queue_full=True, batching_enabled=way == "batches", batching_max_publish_delay_ms=1)
    for number in range(3)
]
MESSAGES, called, done = 200, [0, 0, 0], threading.Event()


def callback(number):
    other = producers[(number + 1) % 3]

    def call(result, message_id):
        called[number] += 1
        if what == "flush":
            other.flush()
        elif what == "send":
            other.send(b"again")
        else:
            for _ in range(5):
                other.send_async(b"again", lambda result, message_id: None)
        if min(called) >= MESSAGES:
            done.set()

    return call


def play(number):
    call = callback(number)
    for _ in range(MESSAGES):
        producers[number].send_async(b"x", call)


for number in range(3):
    threading.Thread(target=play, args=(number,), daemon=True).start()
done.wait()
os._exit(0)
"""


@pytest.mark.parametrize("way", first_of(1, ("records", "batches", "exclusive"), later=1))
@pytest.mark.parametrize("what", ["flush", "fill", "send"])
def test_callbacks_of_several_clients_use_each_other(service_url: str, unique: Unique, what: str, way: str) -> None:
    status, said, errors = run_program(EACH_OTHER, service_url, unique(), what, way, timeout_s=100)
    assert status == 0, said + errors


UNDER_GEVENT = """
import sys

order, url, topic = sys.argv[1:4]
if order != "after":
    from gevent import monkey
    monkey.patch_all() if order == "before" else monkey.patch_all(thread=False, queue=False)

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio
from pulsar_on_kafka.admin import AdminClient

if order == "after":
    from gevent import monkey
    monkey.patch_all()

import gevent

if order in ("before", "after"):
    for opens in (pulsar.Client, AdminClient, pulsar_on_kafka.asyncio.Client):
        try:
            opens(url)
            sys.exit(1)
        except pulsar.NotSupported as refused:
            assert "monkey.patch_all(thread=False, queue=False)" in str(refused), refused
    sys.exit(0)

turns, received = [], []


def count():
    while len(received) < 50:
        turns.append(len(received))
        gevent.sleep(0.01)


def play():
    client = pulsar.Client(url)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for number in range(50):
        producer.send(b"%d" % number)
        received.append(consumer.receive(60_000))
    client.close()


gevent.joinall([gevent.spawn(count), gevent.get_hub().threadpool.spawn(play)], raise_error=True)
assert len(turns) > 5, "other greenlets stood still"
"""


@pytest.mark.parametrize("order", ["before", "after", "beside threads"])
def test_gevent_is_refused_threads(service_url: str, unique: Unique, order: str) -> None:
    status, said, errors = run_program(UNDER_GEVENT, order, service_url, unique(), timeout_s=100)
    assert status == 0, said + errors
