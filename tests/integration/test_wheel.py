"""The wheel in an empty environment, beside a user's own modules named as the repo's folders are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulsar_on_kafka
from tests.steps import Unique

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
FOLDERS = ("layer", "mapping", "schema_compat", "spark_connector", "pok")
PROGRAM = """
import sys
import mapping
import layer
import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema_compat import SchemaType

assert (mapping.MINE, layer.MINE) == ("mapping", "layer")
url, topic = sys.argv[1:]
client = pulsar.Client(url)
consumer = client.subscribe(topic, "billing", consumer_type=pulsar.ConsumerType.Shared)
producer = client.create_producer(topic)
for number in range(3):
    producer.send(b"%d" % number)
for _ in range(3):
    message = consumer.receive(20_000)
    consumer.acknowledge(message, wait=True)
    print(message.data().decode())
client.close()
with AdminClient(url) as admin:
    print("backlog", admin.subscription_stats(topic, "billing").backlog)
print(pulsar.__version__)
"""


def _run(where: Path, *command: object) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(each) for each in command], cwd=where, env=environment, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.timeout(600)
def test_it_lives_beside_a_user_s_own_modules(service_url: str, unique: Unique, tmp_path: Path) -> None:
    _run(ROOT, sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "built", ".")
    (wheel,) = (tmp_path / "built").glob("*.whl")
    uv, python = (sys.executable, "-m", "uv"), tmp_path / "empty" / "bin" / "python"
    _run(tmp_path, *uv, "venv", "--quiet", "--python", sys.executable, "empty")
    locked = ROOT / "requirements" / "dev.lock"
    _run(tmp_path, *uv, "pip", "install", "--quiet", "--python", python, "--constraints", locked, wheel)
    own = tmp_path / "own"
    own.mkdir()
    for name in FOLDERS[1:]:
        (own / f"{name}.py").write_text(f"MINE = {name!r}\n")
    (own / "layer").mkdir()
    (own / "layer" / "__init__.py").write_text("MINE = 'layer'\n")
    (own / "program.py").write_text(PROGRAM)
    topic = unique()

    said = _run(own, python, "program.py", service_url, topic).split("\n")
    assert said == ["0", "1", "2", "backlog 0", pulsar_on_kafka.__version__, ""]

    pok = (python.with_name("pok"), "--url", service_url)
    _run(own, *pok, "produce", topic, "-m", "one", "-m", "two")
    assert "one" in _run(own, *pok, "consume", topic, "-s", "billing", "-n", "2")
    assert "billing" in _run(own, python, "-m", "pulsar_on_kafka.cli", "--url", service_url, "topics", "stats", topic)
    scenarios = _run(own, *pok, "compat", "list")
    assert "subscriptions.failover_stays" in scenarios
    shown = _run(own, *uv, "pip", "show", "--python", python, "pulsar-on-kafka")
    version = re.search(r"^Version: (.+)$", shown, re.MULTILINE)
    assert version is not None
    assert version.group(1) == pulsar_on_kafka.__version__
    assert f"pok {version.group(1)} " in _run(own, *pok[:1], "--version")
    assert f"\n## [{version.group(1)}] - " in (ROOT / "CHANGELOG.md").read_text()
