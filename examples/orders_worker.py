"""One worker: takes orders from a Shared subscription, writes a bill for each, and leaves in good order when told to.

    python examples/orders_worker.py --url kafka://localhost:9092 --topic orders --bills bills --name worker-1

Start as many as there is work: with systemd (examples/systemd/), as processes of one program (examples/worker_fleet.py)
or in containers. They share the orders of a topic of one partition, too. SIGTERM and Ctrl-C end it after the order in
hand; orders that it did not begin go to the others at once. Put your own work in place of `bill_for`.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pulsar_on_kafka as pulsar

SUBSCRIPTION = "billing"
UNDERTAKER = "undertaker"
"""The subscription that keeps dead letters until somebody has looked at them."""
MAX_REDELIVERIES = 2
REFUSED_FOR_MS = 500
WORK_S = 0.02
DRAIN_MS = 30_000
"""The time that a worker has for the order in hand when it is to stop."""


@dataclass(frozen=True)
class Work:
    """What a worker is told: a plain value, which goes to a new process as it is."""

    url: str
    topic: str
    subscription: str
    bills: str
    name: str


class PrinterBusy(Exception):
    """What passes by itself: the order is refused, and comes again."""


def bill_for(order: dict[str, Any], redeliveries: int) -> dict[str, Any]:
    """The bill. Raises PrinterBusy the first time for an order marked `busy`, KeyError for one without `cents`."""
    threading.Event().wait(WORK_S)  # the work: printing it
    if order.get("busy") and not redeliveries:
        raise PrinterBusy(f"order {order['id']}: the printer is busy")
    return {"id": order["id"], "total": f"{order['cents'] / 100:.2f}"}


def work(job: Work) -> None:
    """Until SIGTERM or SIGINT. To be called in the main thread of a process, which signals need.

    The client then closes by itself: when the order in hand is acknowledged, `receive` raises AlreadyClosed. Last, the
    client sends the signal again, to the handler that is set here.

    An order is acknowledged when its bill is stored. A worker that is killed in between leaves an order that another
    one bills again; where that must not be, send and acknowledge in a transaction (examples/exactly_once.py).
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit())
    # Created here, because a child must not use its parent's Client. The process has all its modules by now.
    client = pulsar.Client(job.url, tune_garbage_collector=True)
    try:
        client.close_on_signals(drain_timeout_ms=DRAIN_MS)
        consumer = client.subscribe(
            job.topic,
            job.subscription,
            pulsar.ConsumerType.Shared,
            consumer_name=job.name,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=10,  # what waits here nobody else works on
            negative_ack_redelivery_delay_ms=REFUSED_FOR_MS,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(
                MAX_REDELIVERIES, dead_letter_topic(job.topic, job.subscription), UNDERTAKER
            ),
        )
        producer = client.create_producer(job.bills)
        while True:
            message = consumer.receive()
            try:
                bill = bill_for(json.loads(message.data()), message.redelivery_count())
                producer.send(json.dumps(bill).encode(), properties={"worker": job.name})
            except Exception as failure:  # whatever it is: later, or for somebody else, it may go well
                print(f"{job.name}: {type(failure).__name__}: {failure}; refused", flush=True)
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
    except pulsar.AlreadyClosed:
        print(f"{job.name}: leaves in good order", flush=True)
        signal.pause()  # until the client is closed
    finally:
        client.shutdown()


def dead_letter_topic(topic: str, subscription: str) -> str:
    return f"{topic}-{subscription}-DLQ"


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", required=True, help="kafka://host:port[,host:port...]")
    parser.add_argument("--topic", required=True, help="where the orders come from")
    parser.add_argument("--subscription", default=SUBSCRIPTION)
    parser.add_argument("--bills", required=True, metavar="TOPIC", help="where the bills go")
    parser.add_argument("--name", required=True, help="of this worker, as `pok subscriptions stats` shows it")
    return parser


if __name__ == "__main__":
    work(Work(**vars(options().parse_args())))
