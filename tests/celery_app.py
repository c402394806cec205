"""The Celery application of `tests.chaos.celery_fleet` and `benchmarks.celery_brokers`, run by real workers. Each run
of a task is a line of a log.

The environment has POK_CELERY_BROKER (the URL) and POK_CELERY_LOG (a file, to which each line is appended at once), and
perhaps POK_CELERY_QUEUE, POK_CELERY_OPTIONS (`broker_transport_options` as JSON) and POK_CELERY_CONTROL (0: no remote
control, which kombu's transport for Kafka lacks).
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

from celery import Celery
from celery.signals import worker_ready

app = Celery("fleet", broker=os.environ.get("POK_CELERY_BROKER"))
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options=json.loads(os.environ.get("POK_CELERY_OPTIONS", "{}")),
    task_acks_late=True,
    task_default_queue=os.environ.get("POK_CELERY_QUEUE", "celery"),
    task_ignore_result=True,
    worker_enable_remote_control=os.environ.get("POK_CELERY_CONTROL", "1") == "1",
    worker_prefetch_multiplier=4,
)


def _append(*words: object) -> None:
    log = os.open(os.environ["POK_CELERY_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, (" ".join(str(word) for word in words) + "\n").encode())
    finally:
        os.close(log)


@worker_ready.connect
def _note_ready(sender: Any, **_: Any) -> None:
    _append("ready", sender.hostname)


@app.task(bind=True, max_retries=2)
def work(self: Any, number: int, retries: int, busy_s: float) -> None:
    """Runs for a while, and is retried so many times."""
    request = self.request
    _append("began", number, request.retries, request.hostname, time.time())
    threading.Event().wait(busy_s)
    if request.retries < retries:
        raise self.retry(countdown=0.2)
    _append("done", number, request.retries, request.hostname, time.time())


@app.task
def stamp(sent_s: float) -> None:
    """Notes when it was sent and when it ran."""
    _append("stamp", sent_s, time.time())
