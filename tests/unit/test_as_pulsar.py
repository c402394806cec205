"""The package under the official client's names, in processes of their own."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ROOT

pulsar = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")


def _run(text: str, *command: str, **environment: str) -> tuple[str, str]:
    """What a program prints, and its errors."""
    done = subprocess.run(
        [*(command or (sys.executable, "-c")), text],
        cwd=ROOT,
        env={**os.environ, "POK_CONFIG": "/nowhere", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout, done.stderr


def test_each_official_module_is_ours() -> None:
    """Those of the installed client, so that a later one's modules are missed here."""
    official = {each.name for each in pkgutil.walk_packages(pulsar.__path__, "pulsar.")} - {"pulsar.__about__"}
    program = f"""
import pulsar_on_kafka.as_pulsar
import importlib, pulsar, _pulsar
print(pulsar.__name__, _pulsar.__name__, pulsar._pulsar is _pulsar)
for name in {sorted(official)!r}:
    print(importlib.import_module(name).__name__)
from pulsar.schema import Record
print(Record.__module__, importlib.import_module("pulsar_on_kafka.schema").Record is Record)
"""
    said, errors = _run(program)
    assert errors == ""
    assert said.split("\n") == [
        "pulsar_on_kafka pulsar_on_kafka._pulsar True",
        *(f"pulsar_on_kafka{name.removeprefix('pulsar')}" for name in sorted(official)),
        "pulsar_on_kafka.schema.definition True",
        "",
    ]


@pytest.mark.parametrize("module", ["pulsar.admin", "pulsar.nothing"])
def test_modules_that_the_official_client_lacks_are_not_there(module: str) -> None:
    _, errors = _run(f"import pulsar_on_kafka.as_pulsar\nimport {module}")
    last = errors.splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: pulsar-client has no module '{module}'")


@pytest.mark.parametrize("first", ["pulsar", "_pulsar"])
def test_the_official_client_must_not_be_there_already(first: str) -> None:
    _, errors = _run(f"import {first}\nimport pulsar_on_kafka.as_pulsar")
    last = errors.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "is imported already, from " in last
    assert "pok run" in last


_CLIENT = """
import logging
logging.basicConfig(format="%(message)s", level=logging.INFO)
import pulsar_on_kafka.as_pulsar
import pulsar
try:
    client = pulsar.Client("pulsar+ssl://broker:6651", pulsar.AuthenticationToken("secret"), use_tls=True)
    print(client._options.url, client._options.authentication, client._options.use_tls)
except pulsar.InvalidConfiguration as refused:
    print(refused)
"""


def test_the_cluster_of_the_environment_stands_for_pulsar_s() -> None:
    said, errors = _run(_CLIENT, POK_URL="kafka://127.0.0.1:1")
    assert said == "kafka://127.0.0.1:1 None False\n"
    expected = "kafka://127.0.0.1:1 stands for pulsar+ssl://broker:6651. Not used, as it is for Pulsar: "
    assert f"{expected}authentication, use_tls\n" in errors
    assert "secret" not in errors


def test_a_profile_stands_for_pulsar_s_cluster(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    profile = '[profiles.{}]\nurl = "kafka://127.0.0.1:{}"\n'
    file.write_text('default = "one"\n' + profile.format("one", 1) + profile.format("two", 2))
    without = {"POK_URL": "", "POK_CONFIG": str(file)}
    assert _run(_CLIENT, **without)[0] == "kafka://127.0.0.1:1 None False\n"
    assert _run(_CLIENT, **without, POK_PROFILE="two")[0] == "kafka://127.0.0.1:2 None False\n"
    said, _ = _run(_CLIENT, **without, POK_PROFILE="three")
    assert "profile 'three' is not in" in said


def test_a_program_without_a_cluster_is_told_how_to_name_one() -> None:
    said, _ = _run(_CLIENT, POK_URL="", POK_PROFILE="")
    assert "no Kafka cluster is named that stands for pulsar+ssl://broker:6651: set the environment's POK_URL" in said


def test_pok_run_refuses_what_it_cannot_run() -> None:
    pok = [sys.executable, "-m", "pulsar_on_kafka.cli", "run"]
    assert "nothing.py is not a file" in _run("nothing.py", *pok)[1]
    assert "put options of librdkafka into a profile" in _run("x.py", *pok, "--kafka-config", "linger.ms=1")[1]
