"""Celery's workers are killed while they run tasks that are retried, delayed and revoked: none is lost, and only those
under way at a kill run again.

`make soak ARGS="-k celery_fleet"` plays 20,000 tasks with three kills (POK_CELERY_TASKS), and prints what ran again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from tests.chaos.celery_fleet import REVOKED_FROM, CeleryFleet, celery_fleet, judge
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.kills]


def _reached(fleet: CeleryFleet, tasks: int) -> bool:
    return len(fleet.done()) >= tasks


def play(
    fleet: CeleryFleet, app: Any, admin: AdminClient, *, workers: int, tasks: int, kills: int, revoke_after_s: float
) -> None:
    from tests.celery_app import work

    names = fleet.start(workers)
    revoked = [
        work.apply_async((REVOKED_FROM + number, 0, 0.0), countdown=revoke_after_s).id
        for number in range(max(tasks // 100, 3))
    ]
    app.control.revoke(revoked)

    def send(number: int) -> None:
        retries = 1 if number % 10 == 0 else 0
        work.apply_async((number, retries, 0.004), countdown=2 if number % 10 == 1 else None)

    with ThreadPoolExecutor(4) as senders:
        sent = senders.map(send, range(tasks))
        for kill in range(1, kills + 1):
            before = kill * tasks // (kills + 2)
            until(partial(_reached, fleet, before), "the tasks before a kill")
            fleet.kill(names.pop(0))
            names += fleet.start()
            app.control.revoke(revoked)  # the new worker does not know them
        list(sent)
    until(lambda: len(fleet.done()) >= tasks, lambda: f"{tasks} tasks, not {len(fleet.done())}", progress=fleet.done)
    queue = app.conf.task_default_queue
    until(
        lambda: admin.subscription_stats(queue, "kombu").backlog == 0,
        lambda: f"an empty queue, not {admin.subscription_stats(queue, 'kombu').backlog}",
    )
    fleet.stop()
    runs = fleet.runs()
    verdict = judge(runs, range(tasks), fleet.killed_s)
    latest = max(verdict.again.values(), default=0.0)
    print(
        f"{tasks} tasks, {len(runs)} runs, {len(revoked)} revoked, {kills} kills; {len(verdict.again)} ran again, the "
        f"latest end {latest * 1000:.0f} ms before a kill; {runs[-1].began_s - runs[0].began_s:.0f} s"
    )
    assert (verdict.lost, verdict.revoked_runs, verdict.unexplained) == ([], [], [])


def test_a_killed_worker_loses_no_task(
    service_url: str, unique: Callable[..., str], admin: AdminClient, tmp_path: Path
) -> None:
    with celery_fleet(service_url, unique("fleet"), tmp_path) as (fleet, app):
        play(fleet, app, admin, workers=2, tasks=300, kills=1, revoke_after_s=4)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_celery_fleet_under_three_kills(
    service_url: str, unique: Callable[..., str], admin: AdminClient, tmp_path: Path
) -> None:
    tasks = int(os.environ.get("POK_CELERY_TASKS", "20000"))
    began_s = time.monotonic()
    with celery_fleet(service_url, unique("fleet"), tmp_path) as (fleet, app):
        play(fleet, app, admin, workers=4, tasks=tasks, kills=3, revoke_after_s=60 + tasks / 200)
    print(f"in {time.monotonic() - began_s:.0f} s")
