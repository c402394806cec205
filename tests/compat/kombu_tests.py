"""`make compat ARGS=--kombu-tests`: kombu's own transport tests, from its source distribution, on a Kafka broker.

The tests are the bases in `t/integration/common.py` of the installed version, from which those of every transport of
kombu derive. The run fails if a test outside of `FAILING` fails, or one of them passes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from pulsar_on_kafka.embedded import BrokerOptions, open_broker
from tests.uv import uv

ARGUMENT: Final = "--kombu-tests"
_ONE_CALL: Final = "expects that one call of `drain_events` delivers three messages; here it delivers one"
FAILING: Final[Mapping[str, str]] = {
    "BasePriority::test_publish_consume": _ONE_CALL,
    "BasePriority::test_publish_requeue_consume": _ONE_CALL,
    "BasePriority::test_simple_buffer_publish_consume": "a queue that ends with its consumer has no priorities",
}
"""The tests that do not pass, and why."""
_BASES: Final = (
    "BasicFunctionality", "BaseExchangeTypes", "BaseTimeToLive", "BasePriority", "BaseMessage", "BaseEventLoop",
    "BaseFailover",
)  # fmt: skip
_MODULE: Final = """
import kombu, pytest
import pulsar_on_kafka.integrations.celery
from . import common

URL = {url!r}

@pytest.fixture
def connection():
    return kombu.Connection(URL)

@pytest.fixture
def invalid_connection():
    return kombu.Connection("pulsar-on-kafka://localhost:1")

@pytest.fixture
def failover_connection():
    return kombu.Connection("pulsar-on-kafka://localhost:1;" + URL, connect_timeout=10)

for base in {bases!r}:
    globals()["Test" + base] = type("Test" + base, (getattr(common, base),), {{}})
"""


def _source(folder: Path) -> Path:
    """kombu's source distribution, fetched and unpacked."""
    kombu = f"kombu=={version('kombu')}"
    uv(
        "run", "--no-project", "--with", "pip", "python", "-m", "pip", "download", "--quiet", "--no-deps",
        "--no-binary", "kombu", "--dest", folder, kombu,
    )  # fmt: skip
    (archive,) = folder.glob("kombu-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def main(arguments: Sequence[str]) -> int:
    """Returns 1 if a test did not end as expected. `arguments` go to pytest."""
    with open_broker("embedded", BrokerOptions()) as broker, tempfile.TemporaryDirectory() as folder:
        tests = _source(Path(folder)) / "t" / "integration"
        url = f"pulsar-on-kafka://{broker.bootstrap}"
        (tests / "test_pulsar_on_kafka.py").write_text(_MODULE.format(url=url, bases=_BASES))
        (tests / "none.ini").write_text("[pytest]\n")
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-rA", "-q", "--tb=short", "--noconftest", "-c", tests / "none.ini",
                "-p", "no:cacheprovider", "-W", "ignore", "test_pulsar_on_kafka.py", *arguments,
            ],
            cwd=tests, capture_output=True, text=True, check=False,
        )  # fmt: skip
    results = re.findall(r"^(PASSED|FAILED|ERROR) \S*::Test(\w+::\w+)", done.stdout, re.MULTILINE)
    wrong = [(name, result) for result, name in results if (result == "PASSED") == (name in FAILING)]
    if wrong or not results:
        print(done.stdout, done.stderr)
    for base in _BASES:
        counts = Counter(result for result, name in results if name.startswith(f"{base}::"))
        print(f"{base}: {counts['PASSED']} of {counts.total()} passed")
    for name, result in wrong:
        print(f"not as expected: {name} {result}")
    return 1 if wrong or not results else 0
