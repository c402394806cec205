"""The documented list of metrics is the list there is."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pulsar_on_kafka.metrics import MetricsCollector
from pulsar_on_kafka.metrics.overview import page_of
from tests.overviews import overview

OURS = ("pok_", "pulsar_txn_")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def test_every_metric_is_documented_and_no_other() -> None:
    ours = [family for family in MetricsCollector().collect() if family.name.startswith(OURS)]
    ours += text_string_to_metric_families(page_of(overview()).text.decode())
    endings = {"counter": "_total", "info": "_info"}
    names = {family.name + endings.get(family.type, "") for family in ours}
    assert names == set(re.findall(r"`((?:pok|pulsar_txn)_\w+)`", PAGE.read_text(encoding="utf-8")))
