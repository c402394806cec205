"""The source distribution and its wheel, built from a clone without symbolic links. The wheel in an empty environment:
README's first lines without a Java, and beside a user's own modules named as the repo's folders are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path

import pytest

import pulsar_on_kafka
from hatch_build import readme_for_index
from pulsar_on_kafka.embedded.settings import free_port
from tests.house import SOURCES
from tests.steps import Unique

pytestmark = [pytest.mark.kafka, pytest.mark.long]

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


UV = (sys.executable, "-m", "uv")
NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "POK_MAVEN_REPOSITORY")
"""What a machine says of its way to the network, which an empty environment has, too."""


def _run(where: Path, *command: object, env: Mapping[str, str] | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(each) for each in command], cwd=where, env=env or environment, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("clone")
    _run(where, "git", "clone", "--quiet", "-c", "core.symlinks=false", ROOT, where)  # git's default on Windows
    return where


@pytest.fixture(scope="module")
def dist(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel made of it."""
    built = tmp_path_factory.mktemp("built")
    _run(clone, sys.executable, "-m", "build", "--no-isolation", "--outdir", built, ".")
    return built


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def _installed(wheel: Path, extra: str, where: Path) -> Path:
    """The Python of a new environment."""
    python = where / "bin" / "python"
    _run(where.parent, *UV, "venv", "--quiet", "--python", sys.executable, where)
    locked = ROOT / "requirements" / "dev.lock"
    _run(where, *UV, "pip", "install", "--quiet", "--python", python, "--constraints", locked, f"{wheel}{extra}")
    return python


def test_both_are_whole_and_their_page_leads_into_the_repository(clone: Path, dist: Path, wheel: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md"} <= names
    docs = {str(each.relative_to(clone)) for each in (clone / "docs").rglob("*") if each.suffix in (".md", ".png")}
    assert docs <= names
    with zipfile.ZipFile(wheel) as packed:
        modules = {name for name in packed.namelist() if name.endswith((".py", "py.typed"))}
        (metadata,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        page = Parser().parsestr(packed.read(metadata).decode())
    for folder in SOURCES:
        files = [each for each in (clone / folder).rglob("*") if each.name.endswith((".py", "py.typed"))]
        assert {str(each.relative_to(clone / folder)) for each in files} <= modules
    urls = dict(url.split(", ") for url in page.get_all("Project-URL", []))
    readme = readme_for_index((clone / "README.md").read_text("utf-8"), urls["Source"], f"v{page['Version']}")
    assert page.get_payload() == readme
    assert urls["Changelog"].startswith(f"{urls['Source']}/")


@pytest.mark.timeout(600)
def test_readme_s_first_lines_draw_holes_where_there_is_no_java(wheel: Path, tmp_path: Path) -> None:
    """Nothing but Python, and a home with nothing in it. The lines are README's but for the port, which may be busy."""
    python = _installed(wheel, "[embedded]", tmp_path / "try")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "env", "cat"):
        (tools / name).symlink_to(str(shutil.which(name)))
    path = f"{python.parent}{os.pathsep}{tools}"
    assert not any(shutil.which(name, path=path) for name in ("java", "mvn"))
    port = free_port()
    empty = {"HOME": str(tmp_path / "home"), "PATH": path, "LC_ALL": "C.UTF-8", "POK_URL": f"kafka://127.0.0.1:{port}"}
    env = {**{name: os.environ[name] for name in NETWORK if name in os.environ}, **empty}
    where = tmp_path / "checkout"
    (where / "examples").mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "first_steps.py", where / "examples")

    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## First steps")[2]
    lines, picture = (block.strip() for block in re.findall(r"^```\w+$(.*?)^```$", text, re.MULTILINE | re.DOTALL)[:2])
    install, standalone, steps, show = (line.partition("#")[0].split() for line in lines.splitlines())
    assert install[-3:] == ["pip", "install", "'.[embedded]'"]
    assert standalone == ["pok", "standalone", "&"]
    command = [str(python.with_name("pok")), "standalone", "--port", str(port)]
    with subprocess.Popen(command, cwd=where, env=env, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline() == f"Kafka is ready: {env['POK_URL']}\n"
            said = _run(where, python, *steps[1:], env["POK_URL"], env=env)
            shown = _run(where, python.with_name(show[0]), *show[1:], env=env)
        finally:
            broker.terminate()
    assert broker.returncode == 0
    assert said == "55 orders are billed, 1 of them when it came again, 5 are left\n"
    drawn = [line.rstrip() for line in picture.splitlines() if line != "..."]
    assert [line.rstrip() for line in shown.splitlines()[: len(drawn)]] == drawn


@pytest.mark.timeout(600)
def test_it_lives_beside_a_user_s_own_modules(wheel: Path, service_url: str, unique: Unique, tmp_path: Path) -> None:
    python = _installed(wheel, "", tmp_path / "empty")
    locked = ROOT / "requirements" / "dev.lock"
    _run(tmp_path, *UV, "pip", "install", "--quiet", "--python", python, "--constraints", locked, "pytest")
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

    page = (ROOT / "docs" / "testing.md").read_text()
    (own / "test_orders.py").write_text(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])
    tested = _run(own, "env", f"POK_BOOTSTRAP={service_url.removeprefix('kafka://')}", python, "-m", "pytest", "-q")
    assert "1 passed" in tested

    pok = (python.with_name("pok"), "--url", service_url)
    _run(own, *pok, "produce", topic, "-m", "one", "-m", "two")
    assert "one" in _run(own, *pok, "consume", topic, "-s", "billing", "-n", "2")
    assert "billing" in _run(own, python, "-m", "pulsar_on_kafka.cli", "--url", service_url, "topics", "stats", topic)
    refused = subprocess.run([*pok, "compat", "list"], cwd=own, capture_output=True, text=True, check=False)
    assert "pok compat runs in a checkout of the repository only" in refused.stderr
    shown = _run(own, *UV, "pip", "show", "--python", python, "pulsar-on-kafka")
    version = re.search(r"^Version: (.+)$", shown, re.MULTILINE)
    assert version is not None
    assert version.group(1) == pulsar_on_kafka.__version__
    assert f"pok {version.group(1)} " in _run(own, *pok[:1], "--version")
    assert f"\n## [{version.group(1)}] - " in (ROOT / "CHANGELOG.md").read_text()
