"""`pok schemas check`: files in, a verdict out."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app

INT, LONG, TEXT = '"int"', '"long"', '"string"'


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"int": INT, "long": LONG, "string": TEXT, "broken": "{"}
    for name, text in texts.items():
        (tmp_path / f"{name}.avsc").write_text(text, encoding="utf-8")
    return {name: str(tmp_path / f"{name}.avsc") for name in texts}


def check(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["schemas", "check", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_schema_that_may_follow(files: dict[str, str]) -> None:
    status, out, err = check("--type", "avro", "--strategy", "BACKWARD", files["int"], files["long"])
    assert (status, out, err) == (0, f"{files['long']} may follow {files['int']}: BACKWARD\n", "")


def test_a_schema_that_may_not_says_where_and_why(files: dict[str, str]) -> None:
    status, out, err = check("--type", "AVRO", files["int"], files["long"])
    assert status == 1
    assert "TYPE_MISMATCH" in out
    assert "version 0, forward: the reader has int, the writer long" in out
    assert err == f"pok: {files['long']} may not follow {files['int']}: FULL, 1 reason\n"


@pytest.mark.parametrize("form", [["--json"], ["--output", "json"]])
def test_json_is_all_of_standard_output(files: dict[str, str], form: list[str]) -> None:
    arguments = [
        "--type",
        "avro",
        "--strategy",
        "backward_transitive",
        *form,
        files["string"],
        files["int"],
        files["long"],
    ]
    status, out, _ = check(*arguments)
    assert status == 1
    assert json.loads(out) == {
        "compatible": False,
        "type": "AVRO",
        "strategy": "BACKWARD_TRANSITIVE",
        "incompatibilities": [
            {
                "version": 0,
                "file": files["string"],
                "direction": "backward",
                "rule": "TYPE_MISMATCH",
                "path": "/",
                "message": "version 0, backward: the reader has long, the writer string",
            }
        ],
    }


def test_the_latest_version_is_the_last_but_one_file(files: dict[str, str]) -> None:
    assert check("--type", "avro", "--strategy", "BACKWARD", files["string"], files["int"], files["long"])[0] == 0
    assert check("--type", "avro", "--strategy", "BACKWARD", files["int"], files["string"], files["long"])[0] == 1


def test_a_definition_that_cannot_be_read_is_refused(files: dict[str, str]) -> None:
    status, out, _ = check("--type", "avro", "--json", files["int"], files["broken"])
    assert status == 1
    (found,) = json.loads(out)["incompatibilities"]
    assert (found["rule"], found["version"], found["file"]) == ("SCHEMA_UNREADABLE", 0, files["int"])


def test_types_of_key_and_value_come_as_properties(tmp_path: Path) -> None:
    paths = []
    for name, value in (("old", INT), ("new", TEXT)):
        parts = [b"", value.encode()]
        paths.append(tmp_path / name)
        paths[-1].write_bytes(b"".join(struct.pack(">i", len(part)) + part for part in parts))
    arguments = ["--type", "key_value", "-p", "key.schema.type=STRING", "-p", "value.schema.type=AVRO", "--json"]
    status, out, _ = check(*arguments, *map(str, paths))
    assert status == 1
    assert {found["path"] for found in json.loads(out)["incompatibilities"]} == {"value:/"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--type", "avro", "{int}"], "expected an existing definition and the new one"),
        (["--type", "xml", "{int}", "{long}"], "'xml' is not one of"),
        (["--type", "avro", "--strategy", "SOME", "{int}", "{long}"], "'SOME' is not one of"),
        (["--type", "avro", "-p", "a", "{int}", "{long}"], "--property"),
        (["--type", "avro", "{int}", "/no/such/file"], "does not exist"),
        (["{int}", "{long}"], "--type"),
    ],
)
def test_what_is_not_understood(files: dict[str, str], arguments: list[str], words: str) -> None:
    status, _, err = check(*(argument.format(**files) for argument in arguments))
    assert status == 2
    assert words in " ".join(err.replace("│", " ").split())
