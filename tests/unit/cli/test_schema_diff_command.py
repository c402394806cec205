"""`pok schemas diff`: two files in, the fields that differ out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app

OLD = {"type": "record", "name": "Order", "fields": [
    {"name": "total", "type": "int"}, {"name": "gone", "type": "string"}]}  # fmt: skip
NEW = {"type": "record", "name": "Order", "fields": [
    {"name": "total", "type": "long"}, {"name": "note", "type": "string"}]}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"old": json.dumps(OLD), "new": json.dumps(NEW), "other": json.dumps({**OLD, "doc": "x"}), "broken": "{"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: str(tmp_path / name) for name in texts}


def diff(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["schemas", "diff", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_each_field_says_who_accepts_it(files: dict[str, str]) -> None:
    status, out, _ = diff(files["old"], files["new"], "--type", "avro")
    assert status == 0
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    missing = "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert rows["total"] == ["total", "changed", "int", "long", "yes", "TYPE_MISMATCH"]
    assert rows["note"] == ["note", "added", "string", missing, "yes"]
    assert rows["gone"] == ["gone", "removed", "string", "yes", missing]
    assert out.endswith("BACKWARD: refused, FORWARD: refused, FULL: refused\n")
    assert "FORWARD: TYPE_MISMATCH at /fields/0/type" in out


def test_json_is_all_of_standard_output(files: dict[str, str]) -> None:
    done = CliRunner().invoke(
        app, ["--output", "json", "schemas", "diff", files["old"], files["new"], "--type", "avro"]
    )
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["accepted"] == {"BACKWARD": False, "FORWARD": False, "FULL": False}
    assert found["changes"][0] == {
        "field": "total", "change": "changed", "old": "int", "new": "long", "backward": [],
        "forward": ["TYPE_MISMATCH"],
    }  # fmt: skip
    assert {(one["strategy"], one["path"]) for one in found["reasons"]} == {
        ("BACKWARD", "/fields/1"), ("FORWARD", "/fields/0/type"), ("FORWARD", "/fields/1")
    }  # fmt: skip


def test_schemas_without_a_difference(files: dict[str, str]) -> None:
    verdict = "BACKWARD: accepted, FORWARD: accepted, FULL: accepted\n"
    assert diff(files["old"], files["old"], "--type", "avro") == (0, f"the two are the same\n{verdict}", "")
    status, out, _ = diff(files["old"], files["other"], "--type", "avro")
    assert (status, out) == (
        0, f"no field differs; the texts do, in order, names, documentation or layout\n{verdict}"
    )  # fmt: skip


def test_what_is_no_schema_is_one_line(files: dict[str, str]) -> None:
    status, out, err = diff(files["old"], files["broken"], "--type", "avro")
    assert (status, out) == (1, "")
    assert err.startswith(f"pok: {files['broken']} is no AVRO schema:")
    assert diff(files["old"], files["broken"], "--type", "avrro")[0] == 2
    assert diff(files["old"], "nowhere.avsc", "--type", "avro")[2].startswith(
        "pok: nowhere.avsc cannot be read: No such"
    )
    assert "expected type, schema and properties" in diff(files["old"], files["new"])[2]


def test_files_may_say_their_type(tmp_path: Path) -> None:
    for name, definition in (("old", OLD), ("new", NEW)):
        text = json.dumps({"type": "JSON", "schema": json.dumps(definition), "properties": {}, "name": "JSON"})
        (tmp_path / name).write_text(text, encoding="utf-8")
    status, out, _ = diff(str(tmp_path / "old"), str(tmp_path / "new"))
    assert status == 0
    assert "TYPE_MISMATCH" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["0", "x", "--topic", "orders"], "'x' is not the number"), (["-1", "1", "--topic", "orders"], "-1"),
     (["0", "1", "--topic", "orders", "--type", "avro"], "versions of a topic"),
     (["0", "1", "--topic", "orders", "-p", "a=b"], "versions of a topic"), (["0", "1", "-p", "ab"], "property")],
)  # fmt: skip
def test_what_is_not_understood_is_a_usage_error(arguments: list[str], said: str) -> None:
    status, out, err = diff(*arguments)
    assert (status, out) == (2, "")
    assert said in err


def test_versions_want_a_cluster() -> None:
    done = CliRunner().invoke(app, ["--url", "kafka://127.0.0.1:1", "schemas", "diff", "0", "1", "--topic", "orders"])
    assert done.exit_code == 1
    assert done.stderr.startswith("pok: no broker answers")
