"""A second broker beside the session's, for workers that stay (`resident`): it belongs to their process."""

from __future__ import annotations

import atexit
from typing import Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker

HERE: Final = "here"
THERE: Final = "there"
_running: list[EmbeddedBroker] = []


def second_url() -> str:
    """Started by the first call."""
    if not _running:
        _running.append(EmbeddedBroker(BrokerOptions(heap_mb=512)))
        _running[0].start()
        atexit.register(_running[0].stop)
    return f"kafka://{_running[0].bootstrap}"


def introduce(here: AdminClient, url: str, there: AdminClient) -> None:
    """Have both clusters know themselves and each other."""
    for admin, local in ((here, HERE), (there, THERE)):
        admin.set_local_cluster(local)
        known = {one.name for one in admin.clusters()}  # the group before had another second broker
        for name, at in ((HERE, url), (THERE, second_url())):
            (admin.update_cluster if name in known else admin.create_cluster)(name, at)
