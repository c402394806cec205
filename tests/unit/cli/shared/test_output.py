"""Standard output of commands, and what stays off it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.cli.shared.output import progress_bar, show_names, show_pairs, show_result, show_table
from pulsar_on_kafka.cli.shared.settings import Given, OutputFormat, Settings, read_kafka_config
from pulsar_on_kafka.exceptions import Interrupted, TopicNotFound

TABLE = Settings()
JSON = Settings(output=OutputFormat.JSON)


def test_names_are_lines_or_an_array(capsys: pytest.CaptureFixture[str]) -> None:
    show_names(TABLE, ["a", "b\nc"])
    assert capsys.readouterr().out == "a\nb\\nc\n"
    show_names(JSON, ["a", "b\nc"])
    assert json.loads(capsys.readouterr().out) == ["a", "b\nc"]
    show_names(TABLE, [])
    assert capsys.readouterr().out == ""


def test_a_result_is_a_sentence_or_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(TABLE, "created it", {"created": "it"})
    assert capsys.readouterr().out == "created it\n"
    show_result(JSON, "created it", {"created": "ü"})
    assert capsys.readouterr().out == '{"created": "ü"}\n'


def test_pairs_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show_pairs({"a": 1234, "long name": "x"})
    assert capsys.readouterr().out == "a          1,234\nlong name  x\n"


def test_a_table_in_a_pipe_is_neither_cut_nor_styled(capsys: pytest.CaptureFixture[str]) -> None:
    name = "[bold]" + "x" * 300 + ":smile:"
    show_table(("name", "entries"), [(name, 1234), ("b", 7)])
    out = capsys.readouterr().out
    assert name in out
    assert "\x1b" not in out
    assert out.splitlines()[-1].endswith("    7")


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "entries"), [])
    assert capsys.readouterr().out.splitlines()[0].split() == ["name", "entries"]


def test_progress_stays_off_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("sending", 2, shown=True) as advance:
        advance(1)
    out, err = capsys.readouterr()
    assert out == err == ""


def test_kafka_config_comes_from_pairs_and_files(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# mine\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n", encoding="utf-8")
    assert read_kafka_config([str(file), "sasl.password=c", "debug = all"]) == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "c",
        "debug": "all",
    }


@pytest.mark.parametrize("given", ["nonsense", "=x", "group.id=x", "bootstrap.servers=x:1"])
def test_other_kafka_config_is_refused(given: str) -> None:
    with pytest.raises(typer.BadParameter):
        read_kafka_config([given])


def test_settings_keep_secrets_to_themselves() -> None:
    assert "hunter2" not in repr(Given().overridden(kafka_config=["sasl.password=hunter2"]).settings())


def test_what_is_said_after_the_verb_wins() -> None:
    settings = Given().overridden("kafka://a:1", ["debug=all"], OutputFormat.JSON, False)
    later = settings.overridden("kafka://b:2", ["debug=none", "client.rack=r"], None, True).settings()
    assert (later.url, later.json, later.debug) == ("kafka://b:2", True, True)
    assert dict(later.kafka_config) == {"debug": "none", "client.rack": "r"}


def test_version_and_help_need_no_cluster() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).stdout.startswith("pok ")
    for noun in (
        [],
        ["topics"],
        ["namespaces"],
        ["subscriptions"],
        ["produce"],
        ["consume"],
        ["doctor"],
        ["standalone"],
    ):
        assert runner.invoke(app, [*noun, "--help"]).exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "creat", "x"],
        ["topics", "create"],
        ["topics", "create", "x", "--partitions", "many"],
        ["produce", "x"],
        ["produce", "x", "-m", "a", "--file", "-"],
        ["produce", "x", "--file", "-", "-n", "2"],
        ["produce", "x", "-m", "a", "-p", "novalue"],
        ["produce", "x", "-m", "a", "--rate", "0"],
        ["consume", "x"],
        ["consume", "x", "-s", ""],
        ["subscriptions", "create", "x", "-s", ""],
        ["consume", "x", "-s", "s", "--type", "keyshared"],
        ["subscriptions", "reset", "x", "-s", "s"],
        ["subscriptions", "reset", "x", "-s", "s", "--time", "1h", "--message-id", "earliest"],
        ["subscriptions", "reset", "x", "-s", "s", "--time", "soon"],
        ["topics", "list", "--url", "pulsar://localhost:6650"],
        ["topics", "list", "--kafka-config", "nonsense"],
        ["standalone", "--broker", "docker", "--wipe"],
    ],
)
def test_what_is_not_understood_ends_with_2(arguments: list[str]) -> None:
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert "Error" in found.stderr


def test_a_missing_file_ends_with_1(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["produce", "x", "--file", str(tmp_path / "no\nwhere")])
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.startswith("pok: ")
    assert len(found.stderr.splitlines()) == 1


def test_failures_are_one_line() -> None:
    from pulsar_on_kafka.cli.shared.output import one_line

    assert one_line(TopicNotFound("no\n  such topic")) == "no such topic"
    assert one_line(TopicNotFound()) == "TopicNotFound"
    assert one_line(KeyboardInterrupt()) == one_line(Interrupted("by a signal")) == "interrupted"
    in_librdkafka = SystemError("returned a result with an exception set")
    in_librdkafka.__cause__ = KeyboardInterrupt()
    assert one_line(in_librdkafka) == "interrupted"
    assert one_line(SystemError("another one")) == "another one"


def test_wipe_touches_nothing_that_is_not_a_brokers(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years", encoding="utf-8")
    found = CliRunner().invoke(app, ["standalone", "--data-dir", str(tmp_path), "--wipe", "--yes"])
    assert found.exit_code == 1
    assert "thesis.tex" in found.stderr
    assert (tmp_path / "thesis.tex").exists()


def test_wipe_wants_to_be_told(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    found = CliRunner().invoke(app, ["standalone", "--data-dir", str(tmp_path), "--wipe"])
    assert found.exit_code == 1
    assert "--yes" in found.stderr
    assert (tmp_path / "kafka").exists()
