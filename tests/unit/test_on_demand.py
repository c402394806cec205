"""Imports and `pok` begin with little: what a program does not use is not loaded. Lists of modules say so, no times."""

from __future__ import annotations

import ast
import inspect
import json
import os
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka.cli.shared.on_demand import OnDemandGroup

ROOT: Final = Path(__file__).resolve().parents[2]
LOADED: Final = "; import json, sys; print(); print(json.dumps(sorted(sys.modules)))"
HEAVY: Final = (
    "aiokafka", "asyncio", "confluent_kafka", "cryptography", "fastavro", "kafka", "msgspec", "orjson",
    "prometheus_client", "pydantic", "pyroaring", "pyspark", "rich",
)  # fmt: skip
DOING: Final = {"pulsar_on_kafka.admin", "pulsar_on_kafka.client.client", "pulsar_on_kafka.broker.node.node"}
"""What commands do their work with."""
NAMELESS: Final = {
    "compat", "doctor", "gateway", "lookup", "metrics", "migrate", "overview", "serve", "standalone", "top",
}  # fmt: skip
"""Commands whose arguments are no names that a shell completes."""
AS_POK: Final = """
import atexit, json, sys
atexit.register(lambda: print("\\n" + json.dumps(sorted(sys.modules))))
sys.argv = ["pok", *sys.argv[1:]]
from pulsar_on_kafka.cli.main import main
main()
"""


def _loaded(code: str, *arguments: str, **environment: str) -> tuple[str, set[str]]:
    """What a fresh interpreter printed, and its modules when it ended."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said, _, modules = ended.stdout.rstrip("\n").rpartition("\n")
    return said, set(json.loads(modules))


def _heavy(modules: set[str]) -> set[str]:
    return modules & set(HEAVY)


def _ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("pulsar_on_kafka")}


def test_an_import_loads_the_exceptions_alone() -> None:
    _, modules = _loaded("import pulsar_on_kafka" + LOADED)
    assert _ours(modules) == {
        "pulsar_on_kafka",
        "pulsar_on_kafka.exceptions",
        "pulsar_on_kafka.broker",
        "pulsar_on_kafka.broker.node",
    }
    assert not _heavy(modules)


def test_an_enum_and_an_exception_need_no_kafka() -> None:
    _, modules = _loaded("from pulsar_on_kafka import ConsumerType, Timeout" + LOADED)
    assert not _heavy(modules)


def test_a_client_needs_no_library_of_terminals_spark_or_the_service() -> None:
    _, modules = _loaded("from pulsar_on_kafka import Client" + LOADED)
    assert not modules & {"kafka", "prometheus_client", "pyspark", "rich", "typer", "pulsar_on_kafka.service"}


def test_every_public_name_is_loaded_when_it_is_asked_for() -> None:
    names = [*pulsar.__all__, "__version__"]
    assert set(names) <= set(dir(pulsar))
    for name in [*names, "_pulsar"]:
        found = getattr(pulsar, name)
        assert found is not None
        assert vars(pulsar)[name] is found, "asked once, it is an attribute like any other"


def test_every_name_of_dir_is_an_attribute_without_another_import() -> None:
    _loaded("import pulsar_on_kafka as pulsar\nfor name in dir(pulsar): getattr(pulsar, name)" + LOADED)


def test_types_are_checked_by_the_modules_that_are_loaded() -> None:
    """What mypy reads under TYPE_CHECKING is what `__getattr__` finds."""
    tree = ast.parse((ROOT / "layer" / "pulsar_on_kafka" / "__init__.py").read_text(encoding="utf-8"))
    told = {
        alias.name: "" if node.module == "pulsar_on_kafka" else node.module
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_") or alias.name == "_pulsar"
    }
    assert told.pop("exceptions") == ""
    assert told == pulsar._MODULES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Klient'"):
        _ = pulsar.Klient  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        from pulsar_on_kafka import Klient  # type: ignore[attr-defined] # noqa: F401


def test_a_name_may_be_replaced_and_is_back_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pulsar.Consumer
    with monkeypatch.context() as patched:
        patched.setattr(pulsar, "Consumer", dict)
        patched.setattr("pulsar_on_kafka.Producer.send", lambda *_: "patched")
        assert pulsar.Consumer is dict
        assert pulsar.Producer.send(b"") == "patched"  # type: ignore[arg-type, call-arg]
    assert pulsar.Consumer is before


def test_a_process_that_has_loaded_nothing_reads_what_another_one_pickled() -> None:
    values = (pulsar.MessageId.earliest, pulsar.ConsumerType.Shared, pulsar.schema.StringSchema())
    said, modules = _loaded(
        "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))[1])" + LOADED, pickle.dumps(values).hex()
    )
    assert said.splitlines()[0] == str(pulsar.ConsumerType.Shared)
    assert "pulsar_on_kafka.schema.plain" in modules


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ()])
def test_pok_says_its_version_and_its_help_without_a_command(arguments: tuple[str, ...]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AS_POK, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    modules = set(json.loads(ended.stdout.rstrip("\n").rpartition("\n")[2]))
    assert not _heavy(modules) - {"rich"}, "typer prints help with rich"
    assert not any(name.startswith("pulsar_on_kafka.cli.commands") for name in modules)
    assert "rich" not in modules or arguments != ("--version",)


def test_a_shell_completes_nouns_without_a_command() -> None:
    said, modules = _loaded(AS_POK, _POK_COMPLETE="complete_bash", COMP_WORDS="pok sub", COMP_CWORD="1")
    assert said.split() == ["subscriptions"]
    assert not _heavy(modules)


def _offered(line: str) -> tuple[list[str], set[str]]:
    """What bash offers for the last word of a line, with nobody at the cluster's address, and the modules loaded."""
    said, modules = _loaded(
        AS_POK,
        POK_URL="kafka://127.0.0.1:1",
        _POK_COMPLETE="complete_bash",
        COMP_WORDS=f"pok {line}",
        COMP_CWORD=str(len(line.split())),
    )
    assert not modules & DOING, "of a command only its words are needed"
    return said.split(), modules


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("topics comp", ["compact", "compaction-status"]),
        ("subscriptions stats orders --subs", ["--subscription"]),
        ("topics policy get orders message_t", ["message_ttl_in_seconds"]),
    ],
)
def test_a_shell_completes_verbs_options_and_policies_without_a_library_of_kafka_s(
    line: str, offered: list[str]
) -> None:
    said, modules = _offered(line)
    assert said == offered
    assert _heavy(modules) <= {"msgspec"}


@pytest.mark.parametrize("line", ["topics stats ord", "subscriptions stats orders -s bil", "spark count orders -s bil"])
def test_a_shell_that_completes_names_loads_what_asks_the_cluster_and_no_more(line: str) -> None:
    said, modules = _offered(line)
    assert said == []
    assert _heavy(modules) <= {"asyncio", "confluent_kafka", "msgspec"}, "asyncio is confluent_kafka's"


def test_no_command_that_takes_names_loads_more_than_its_words() -> None:
    group = get_command(app)
    assert isinstance(group, OnDemandGroup)
    homes = {told.where.partition(":")[0] for name, told in group.on_demand.items() if name not in NAMELESS}
    _, modules = _loaded("".join(f"import {home};" for home in sorted(homes)) + "pass" + LOADED)
    assert not modules & DOING, "import it under TYPE_CHECKING, or where it is used"
    assert _heavy(modules) <= {"msgspec", "orjson", "pyroaring"}


def test_every_command_is_told_of_as_it_tells_of_itself() -> None:
    group = get_command(app)
    assert isinstance(group, OnDemandGroup)
    for name, told in group.on_demand.items():
        found = pkgutil.resolve_name(told.where)
        if not isinstance(found, typer.Typer):
            assert (inspect.getdoc(found) or "").startswith(told.help), name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--output", "yaml", "topics", "list"), "Invalid value for '--output': 'yaml' is not one of 'table', 'json'."),
        (
            ("consume", "t", "-s", "s", "--type", "x"),
            "'x' is not one of 'exclusive', 'shared', 'failover', 'key_shared'.",
        ),
        (("topics", "create", "t", "--partitions", "many"), "got 'many'"),
        (("consume", "t", "-s", "s", "-n", "-4"), "got '-4'"),
        (("serve", "--only", "cooking"), "'cooking' is not one of 'maintenance', "),
        (("schemas", "check", "a", "b", "--type", "cobol"), "'cobol' is not one of "),
        (("acls", "print", "--role", "king", "--principal", "a", "--topic", "t"), "'king' is not one of 'producer', "),
        (("transactions", "show", "x"), "'x'"),
        (("transactions", "slow", "--time", "x"), "'x'"),
        (("--kafka-config", "nonsense", "topics", "list"), "got 'nonsense'"),
        (("--instance", "A B", "topics", "list"), "'A B'"),
    ],
)
def test_a_value_that_is_refused_is_named_without_the_validator_s_words(arguments: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    told = " ".join(found.stderr.replace("│", " ").split())
    assert found.exit_code == 2, told
    assert said in told
    assert "Value error" not in told
