"""`ServiceInfo` and the classes that hold several."""

from __future__ import annotations

from typing import Any

import pulsar as official
import pytest

import layer as ours

URL = "kafka://localhost:9092"


def test_a_client_tells_how_it_reaches_its_cluster() -> None:
    info = ours.Client(URL).get_service_info()
    assert (info.service_url, info.use_tls, info.tls_trust_certs_file_path) == (URL, False, None)
    assert repr(ours.ServiceInfo.wrap(info)) == repr(info)


def test_repr_is_the_official_one() -> None:
    assert repr(ours.ServiceInfo("pulsar://a:1")) == repr(official.ServiceInfo("pulsar://a:1"))
    mine = ours.AutoClusterFailover(ours.ServiceInfo("pulsar://a:1"), [ours.ServiceInfo("pulsar+ssl://b:2")])
    theirs = official.AutoClusterFailover(
        official.ServiceInfo("pulsar://a:1"), [official.ServiceInfo("pulsar+ssl://b:2")]
    )
    assert repr(mine) == repr(theirs)


@pytest.mark.parametrize(
    "options",
    [
        {"primary": "x"},
        {"secondary": []},
        {"secondary": ["x"]},
        {"secondary": ()},
        {"check_interval_ms": 0},
        {"failover_threshold": 0},
        {"switch_back_threshold": -1},
        {"check_interval_ms": "1"},
    ],
)
def test_auto_cluster_failover_refuses_what_the_official_one_refuses(options: dict[str, Any]) -> None:
    for module in (official, ours):
        infos: dict[str, Any] = {
            "primary": module.ServiceInfo("pulsar://a:1"),
            "secondary": [module.ServiceInfo("pulsar://b:1")],
        }
        with pytest.raises(ValueError, match=next(iter(options))):
            module.AutoClusterFailover(**{**infos, **options})


def test_switching_clusters_is_refused_clearly() -> None:
    failover = ours.AutoClusterFailover(ours.ServiceInfo(URL), [ours.ServiceInfo(URL)])
    for given in (failover, ours.ServiceInfoProvider()):
        with pytest.raises(ours.NotSupported, match=f"{type(given).__name__} as the service URL"):
            ours.Client(given)  # type: ignore[arg-type]
