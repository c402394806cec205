from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_on_kafka.embedded.errors import JavaTooOld, NoJava
from pulsar_on_kafka.embedded.java import find_java


@pytest.fixture(autouse=True)
def _no_java_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def fake_java(directory: Path, version: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)


def test_no_java_says_what_to_install() -> None:
    with pytest.raises(NoJava, match=r"pip install .*\[embedded\]"):
        find_java()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16-ea"])
def test_an_old_java_is_named(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path, version)
    with pytest.raises(JavaTooOld, match=f"is Java {version}, Kafka needs 17"):
        find_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_java_will_do(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path, version)
    assert find_java().version == version


def test_java_home_comes_before_the_path_unless_it_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "21.0.1")
    fake_java(tmp_path / "old" / "bin", "11.0.2")
    fake_java(tmp_path / "new" / "bin", "25")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert find_java().version == "25"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert find_java().version == "21.0.1"


def test_a_program_may_require_a_newer_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17.0.15")
    with pytest.raises(JavaTooOld, match=r"is Java 17\.0\.15, Pulsar 5\.0\.1 needs 21: .* version 21 or later"):
        find_java(21, "Pulsar 5.0.1")
    fake_java(tmp_path / "new" / "bin", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert find_java(21, "Pulsar 5.0.1").version == "21.0.8"


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(NoJava):
        find_java()
