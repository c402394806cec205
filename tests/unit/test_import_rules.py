"""The import rules of the house (style.md), said in code."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("mapping", "schema_compat", "layer", "spark_connector")
PURE_LAYER_MODULES = (
    "machine.py", "model.py", "positions.py", "strategy.py", "versioned.py", "partition.py", "intake.py",
    "read_ahead.py", "entries.py", "handing_out.py", "acknowledging.py", "partition_saves.py", "key_order.py",
    "delivery_guard.py", "coordinator_rules.py", "coordinator_state.py", "coordinator_machine.py",
    "coordinator_timeouts.py", "record_groups.py", "inspection.py", "following.py", "sampling.py", "trimming.py",
    "expiry.py", "quotas.py", "deletion.py",
)  # fmt: skip
OF_SPARK = ("layer/cli/commands/spark.py",)
"""The command line over the connector, which it loads when it is asked for it."""
NO_IO = ("socket", "threading", "subprocess", "asyncio", "logging", "time", "confluent_kafka", "pyspark")


def _modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@cache
def _imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return frozenset(found)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _offending(path: Path, forbidden: tuple[str, ...]) -> list[str]:
    return sorted(name for name in _imports(path) if any(_within(name, package) for package in forbidden))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_point_one_way() -> None:
    offending = {}
    for path in _modules():
        package = path.relative_to(ROOT).parts[0]
        forbidden = {
            "mapping": ("layer", "schema_compat", "spark_connector", *NO_IO),
            "schema_compat": ("layer", "mapping", "spark_connector", *NO_IO),
            "layer": ("spark_connector", "tests", "examples"),
            "spark_connector": ("tests", "examples", "confluent_kafka"),
        }[package]
        if _name(path) in OF_SPARK:
            forbidden = tuple(package for package in forbidden if package != "spark_connector")
        offending[_name(path)] = _offending(path, forbidden)
    _check(offending)


def test_only_layer_kafka_knows_librdkafka() -> None:
    elsewhere = [path for path in _modules() if "layer" in path.parts and "kafka" not in path.parts]
    _check({_name(path): _offending(path, ("confluent_kafka",)) for path in elsewhere})


def test_state_machines_do_no_io() -> None:
    adapters = (
        "pulsar_on_kafka.kafka.producer",
        "pulsar_on_kafka.kafka.reading.fetcher",
        "pulsar_on_kafka.kafka.groups.membership",
        "pulsar_on_kafka.kafka.admin",
        "pulsar_on_kafka.node.services",
        "pulsar_on_kafka.node.node",
    )
    pure = [path for path in _modules() if path.name in PURE_LAYER_MODULES]
    _check({_name(path): _offending(path, (*adapters, *NO_IO)) for path in pure})


def _check(offending: dict[str, list[str]]) -> None:
    assert len(offending) > 10, "the modules were not found"
    assert {name: found for name, found in offending.items() if found} == {}


def test_services_do_not_import_the_sdk() -> None:
    services = ("kafka", "statelog", "cursor", "dispatch", "metadata", "registry", "embedded", "transactions")
    offending = {
        _name(path): _offending(path, ("pulsar_on_kafka.client", "pulsar_on_kafka.admin", "pulsar_on_kafka.cli"))
        for service in services
        for path in (ROOT / "layer" / service).rglob("*.py")
    }
    _check(offending)


def test_headers_are_asked_for_in_the_one_way_that_bears_those_of_others() -> None:
    """`record.headers()` of confluent-kafka gives null pointers for a name that is no UTF-8."""
    calling = set()
    for path in _modules():
        if path.relative_to(ROOT).parts[0] != "layer":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and not node.args and getattr(node.func, "attr", "") == "headers":
                calling.add(_name(path))
    assert not calling, f"{sorted(calling)}: ask by pulsar_on_kafka.kafka.records.headers_of"


def test_only_an_instance_makes_kafka_s_names_of_state() -> None:
    """Whoever made one by another way would write into the state of everybody, whatever instance a program is of."""
    outside = [path for path in _modules() if path.relative_to(ROOT).parts[0] in ("layer", "spark_connector")]
    offending: dict[str, list[str]] = {}
    for path in outside:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        offending[_name(path)] = [
            ast.unparse(node)
            for node in ast.walk(tree)
            if (isinstance(node, ast.alias) and node.name == "kafka_topic")
            or (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docstrings
                and "pulsar.system" in node.value
            )
        ]
    _check(offending)
