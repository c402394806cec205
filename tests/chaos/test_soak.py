"""Random faults for as long as wanted: `make soak`.

POK_CHAOS_SECONDS   how long (default 600)
POK_CHAOS_SEED      the seed of the first round, to run a printed one again
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded import EmbeddedBroker
from tests.chaos.rounds import Tally, run_rounds
from tests.steps import Unique

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("quick_cleaner"), pytest.mark.soak]


def test_random_faults(own_broker: EmbeddedBroker, tmp_path: Path, unique: Unique) -> None:
    until = time.monotonic() + float(os.environ.get("POK_CHAOS_SECONDS", "600"))
    seed = int(os.environ.get("POK_CHAOS_SEED", "0")) or secrets.randbits(32)
    tally = Tally()
    for tally in run_rounds(own_broker, tmp_path, unique, seed, until, 40.0):
        print(f"    so far: {tally}", flush=True)
    assert not tally.broken, "\n".join(tally.broken)
