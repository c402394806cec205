"""The soak in two minutes: the same rounds, from a seed that stays, as part of `make chaos`.

What happens within a round is still a matter of timing; POK_CHAOS_SEED takes another seed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded import EmbeddedBroker
from tests.chaos.rounds import Tally, run_rounds
from tests.steps import Unique

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("quick_cleaner"), pytest.mark.timeout(900)]

_SEED = 2024
_BEGIN_ROUNDS_S = 70.0
_ROUND_S = 18.0


def test_random_faults_for_two_minutes(own_broker: EmbeddedBroker, tmp_path: Path, unique: Unique) -> None:
    until = time.monotonic() + _BEGIN_ROUNDS_S
    seed = int(os.environ.get("POK_CHAOS_SEED", "0")) or _SEED
    tally = Tally()
    for tally in run_rounds(own_broker, tmp_path, unique, seed, until, _ROUND_S):
        print(f"    so far: {tally}", flush=True)
    assert not tally.broken, "\n".join(tally.broken)
