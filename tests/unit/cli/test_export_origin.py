"""Whether a tenant was imported from the Pulsar cluster to which it is exported."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pulsar_on_kafka.cli.migrate.migrate_export import _is_its_origin
from pulsar_on_kafka.cli.shared.output import CommandFailed
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarAddress
from pulsar_on_kafka_mapping.state.clusters.tenant_records import ImportRecord, ImportStep

_KNOWN = ImportRecord("acme", "pulsar:standalone", "pulsar://a:6650", "http://a:8080", ImportStep.IMPORTED, 1, 0)


class _Named:
    def __init__(self, name: str) -> None:
        self._name = name

    def cluster(self) -> str:
        return self._name


def _decided(service_url: str, admin_url: str, name: str, told: bool | None = None) -> bool:
    return _is_its_origin(_KNOWN, PulsarAddress(service_url, admin_url), cast("Any", _Named(name)), told)


def test_an_address_of_the_import_is_that_of_the_same_cluster() -> None:
    assert _decided("pulsar://a:6650", "http://lb:80", "standalone")
    assert _decided("pulsar://lb:6650", "http://a:8080", "standalone")


def test_a_cluster_of_another_name_is_another_one() -> None:
    assert not _decided("pulsar://b:6650", "http://b:8080", "west")


def test_the_user_says_what_the_name_alone_does_not_decide() -> None:
    """Else messages would be left out that happen to have ledger ids of that cluster."""
    with pytest.raises(CommandFailed, match=r"imported from a Pulsar cluster of this name \(standalone\) at http://a"):
        _decided("pulsar://b:6650", "http://b:8080", "standalone")
    assert _decided("pulsar://b:6650", "http://b:8080", "standalone", told=True)
    assert not _decided("pulsar://b:6650", "http://b:8080", "standalone", told=False)
