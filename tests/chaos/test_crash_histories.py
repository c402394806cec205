"""Crash histories of mixed shapes on a broker whose requests arrive late and twice.

`make soak ARGS="-k crash_histories"` plays 200. POK_CHAOS_SEED is the first seed, POK_CHAOS_HISTORIES how many.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from pulsar_on_kafka.admin import AdminClient
from tests.chaos.crash_histories import CrashHistory
from tests.chaos.crash_worker import new_client
from tests.late_proxy import LateProxy
from tests.steps import Unique

pytestmark = pytest.mark.kafka

_FIRST_SEED = 3000


def play(seeds: range, proxy: LateProxy, directory: Path, topic: Unique) -> None:
    broken: list[str] = []
    counts: Counter[str] = Counter()
    with AdminClient(proxy.url, operation_timeout_seconds=120) as admin, closing(new_client(proxy.url)) as client:
        for seed in seeds:
            found = CrashHistory(seed, proxy, directory, topic()).play(client, admin)
            broken += found.broken
            counts += found.counts
            print(f"{found.shape} {dict(found.counts)} {found.broken}", flush=True)
    print(f"{len(seeds)} histories: {dict(counts)}; late: {dict(proxy.delivered)}; broken: {len(broken)}", flush=True)
    assert not broken, "\n".join(broken)
    assert counts["kills"] >= 3 * len(seeds)
    assert proxy.delivered["OffsetCommit"] > len(seeds) / 4


@pytest.mark.long
def test_crash_histories(late: LateProxy, tmp_path: Path, unique: Unique) -> None:
    play(range(_FIRST_SEED, _FIRST_SEED + 4), late, tmp_path, unique)


@pytest.mark.soak
def test_two_hundred_crash_histories(late: LateProxy, tmp_path: Path, unique: Unique) -> None:
    first = int(os.environ.get("POK_CHAOS_SEED", "0")) or _FIRST_SEED
    play(range(first, first + int(os.environ.get("POK_CHAOS_HISTORIES", "200"))), late, tmp_path, unique)
