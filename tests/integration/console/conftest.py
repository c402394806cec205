"""A console of the shared broker, and one of a cluster that is not there; Chromium for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from tests.browser import Chromium, chromium, why_no_chromium
from tests.consoles import EVERY_S, Console, a_console


@pytest.fixture
def console(admin: AdminClient, service_url: str) -> Iterator[Console]:
    """Of the shared broker."""
    with a_console(service_url, every_s=EVERY_S) as made:
        made.site.connect(admin, SharedGatherer(admin.node))
        yield made
        made.site.close(Deadline.after(30))


@pytest.fixture
def operated(admin: AdminClient, service_url: str) -> Iterator[Console]:
    """The same with an operator, anna, and a token of readers."""
    with a_console(service_url, every_s=EVERY_S, token="looks", operators={"anna": "operates"}) as made:
        made.site.connect(admin, SharedGatherer(admin.node))
        yield made
        made.site.close(Deadline.after(30))


@pytest.fixture
def lonely() -> Iterator[Console]:
    """Of no cluster: it shows what a test gives it."""
    with a_console("kafka://kafka.shop:9092", every_s=EVERY_S) as made:
        yield made


@pytest.fixture(scope="session")
def _browser() -> Iterator[Chromium]:
    if reason := why_no_chromium():
        pytest.skip(reason)
    with chromium() as made:
        yield made


@pytest.fixture
def browser(_browser: Chromium) -> Iterator[Chromium]:
    """Light, with a page of its own, and nothing to complain of in the end."""
    _browser.open("about:blank")
    _browser.prefer("light")
    _browser.complaints()
    yield _browser
    # The console ends before the page that asks it again and again.
    assert [each for each in _browser.complaints() if "ERR_CONNECTION_REFUSED" not in each] == []
