"""The house's order, held for every module: floors, rooms, no circles, pure modules. Docs: docs/architecture.md.

All imports count, also those inside of functions and under `TYPE_CHECKING`, and those that a string names as
module:name.
"""

from __future__ import annotations

import ast
import pkgutil
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "pulsar_on_kafka"
PACKAGES = {
    "layer/pulsar_on_kafka": NAME,
    "mapping/pulsar_on_kafka_mapping": f"{NAME}.mapping",
    "schema_compat/pulsar_on_kafka_schema_compat": f"{NAME}.schema_compat",
    "spark_connector/pulsar_on_kafka_spark": f"{NAME}.spark",
}
"""Source folders, and the prefix of their modules' names in this test: each package is one floor or all others."""
FOR_USERS = ("schema_compat.py", "spark.py")
"""Modules of the root that give a package its name for users."""

FLOORS = (
    "base", "mapping", "schema_compat", "kafka", "statelog", "schema", "crypto", "broker", "client", "asyncio",
    "functions", "admin", "metrics", "service", "clusters", "gateway", "embedded", "testing", "spark", "console",
    "scaler", "integrations", "cli",
)  # fmt: skip
"""A module imports from its own floor and from those before it."""
ROOMS = {
    "broker": (
        "cursor",
        "metadata",
        "schema_registry",
        "transactions",
        "deduplication",
        "replication_state",
        "managed_ledger",
        "subscriptions",
        "node",
        "lookup",
        "publishing",
    ),
    "broker.subscriptions": ("records", "partition", "dispatching", "leases", "member", "requests"),
    "client": ("values", "connection", "producer", "receiving", "consumer", "reader", "failover"),
}
"""Folders of a floor, in their order; what lies beside them on the floor comes behind them."""
IMPORT_PATH = ROOT / "layer" / NAME / "import_path"
"""Its files are modules of the programs that `pok run` starts, not of a package."""
EVERYBODYS = f"{NAME}.exceptions"
"""The one module of the root that the floors import: users know the exceptions by that name."""
MAX_MODULES = 20

PURE_FOLDERS = ("mapping", "schema_compat", "broker.transactions.coordinator", "broker.subscriptions.partition")
PURE = re.compile(r"\bNo I/O\b|\bPure\b")
"""A module outside of these folders is pure when its docstring says so."""
SUBSCRIPTED = re.compile(r"(collections\.abc|typing)\.\w+|collections\.(Counter|deque)")
"""Of the standard library, what Python 3.10 can subscript where a program runs. mypy does not tell: its stubs have
generic classes that became so in a later version, `logging.StreamHandler` for one."""
NO_IO = ("socket", "threading", "subprocess", "asyncio", "time", "confluent_kafka", "pyspark")

MACHINE_TIME: Mapping[str, tuple[str, ...]] = {
    "time": ("time", "time_ns", "localtime", "gmtime", "ctime", "strftime"),
    "datetime": ("now", "utcnow", "today"),
    "date": ("today",),
}
"""What reads a machine's wall clock, by its owner."""
READS_MACHINE_TIME: Mapping[str, str] = {
    "base.clock": "has the machine's clock, beneath that of the brokers",
    "broker.node.services": "makes the brokers' clock over it",
    "kafka.security": "librdkafka compares a login's end with this machine's clock",
    "client.values.authentication": "a login that lasts so long ends by this machine's clock, as librdkafka takes it",
    "client.tracing": "spans have this machine's time, as those of the program around them",
    "broker.publishing.chunking": "chunks are published now: a record's time is its producer's, as librdkafka's own",
    "cli.doctor.probe": "compares the machine's clock with a broker's, which is what it is for",
    "cli.commands.spark": "a person says 'two hours ago' beside this machine",
    "console.view_model": "shows this machine's time until a cluster is reached",
    "kafka.consumer_groups": "monotonic time alone",
    "service.health": "monotonic time alone",
    "statelog.compare_and_set": "monotonic time alone, and the steps of the machine's clock",
    "broker.transactions.serving.coordinator": "the default of a test; a node gives its own",
}
"""Modules that may, with the reason. All others have a clock given, and a node gives that of the brokers."""


@dataclass(frozen=True)
class Import:
    """`line` of `module` imports `of`, which is a module of ours or not."""

    module: str
    line: int
    of: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.of}"


@cache
def _files() -> Mapping[str, Path]:
    found = {}
    for folder, name in PACKAGES.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent == ROOT / folder and path.name in FOR_USERS:
                continue
            if path.parent == IMPORT_PATH:
                continue
            parts = [name, *path.relative_to(ROOT / folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    assert len(found) > 500, "the modules were not found"
    return found


@dataclass(frozen=True)
class Read:
    """What a module's text says: its tree is walked once, and forgotten."""

    docstring: str
    imports: tuple[Import, ...]
    asks_for_headers: tuple[int, ...]
    """Lines with a call of somebody's `headers` without arguments."""
    subscripted: tuple[str, ...]
    """Classes of the standard library that are, elsewhere than in annotations, which nobody evaluates."""
    machine_time: tuple[int, ...]
    """Lines that read, or name what reads, the machine's wall clock."""
    names_of_state: tuple[str, ...]
    """Where Kafka's name of a state topic is made: imports of what does it, and texts but for docstrings."""


@cache
def _read(module: str) -> Read:
    tree = ast.parse(_files()[module].read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    calls = (node for node in nodes if isinstance(node, ast.Call) and not node.args)
    return Read(
        ast.get_docstring(tree) or "",
        tuple(each for node in nodes for each in _imported(module, node) if each.of != module),
        tuple(node.lineno for node in calls if getattr(node.func, "attr", "") == "headers"),
        tuple(_subscripted(nodes)),
        tuple(_machine_time(nodes)),
        tuple(ast.unparse(node) for node in nodes if node not in docstrings and _names_state(node)),
    )


def _subscripted(nodes: Sequence[ast.AST]) -> Iterator[str]:
    hints = [getattr(node, name, None) for node in nodes for name in ("annotation", "returns")]
    unread = {node for hint in hints if hint is not None for node in ast.walk(hint)}
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            known |= {alias.asname or alias.name: of + alias.name for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.Subscript) and node not in unread:
            name, dot, inner = ast.unparse(node.value).partition(".")
            whole = known.get(name, "") + dot + inner
            named = re.fullmatch(r"[\w.]+", whole) and whole.split(".")[0] in sys.stdlib_module_names
            if named and isinstance(pkgutil.resolve_name(whole), type):
                yield whole


def _machine_time(nodes: Iterable[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if node.attr in MACHINE_TIME.get(owner, ()):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if names & {*MACHINE_TIME.get(node.module or "", ()), "SystemClock"}:
                yield node.lineno


def _imported(module: str, node: ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(module, node.lineno, _short(alias.name))
    elif isinstance(node, ast.ImportFrom) and node.module:
        of = _short(node.module)
        for alias in node.names:
            whole = f"{of}.{alias.name}"
            yield Import(module, node.lineno, whole if whole in _files() else of)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        named, colon, _ = _short(node.value).partition(":")
        if colon and named in _files():  # module:name, in a table of what is loaded on demand
            yield Import(module, node.lineno, named)


def _short(name: str) -> str:
    """A module's name as this test has it. A package's name for users stays another name, which no module imports."""
    if re.match(rf"{NAME}\.(mapping|schema_compat|spark)\b", name):
        return f"{name} for users"
    return re.sub(rf"^{NAME}_(mapping|schema_compat|spark)\b", rf"{NAME}.\1", name)


def _names_state(node: ast.AST) -> bool:
    if isinstance(node, ast.alias):
        return node.name == "kafka_topic"
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and "pulsar.system" in node.value


def _imports(module: str) -> tuple[Import, ...]:
    return _read(module).imports


def _ours() -> Iterator[Import]:
    return (each for module in _files() for each in _imports(module) if each.of in _files())


def _inner(module: str) -> list[str]:
    """Its path below the root; empty for the root."""
    return module.split(".")[1:]


def _folder(module: str) -> str:
    return module if _files()[module].name == "__init__.py" else module.rpartition(".")[0]


def _is_root(module: str) -> bool:
    """A module of the package's root, which users import."""
    return module == NAME or _files()[module].parent == ROOT / "layer" / NAME


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _none(offending: Iterable[object]) -> None:
    told = sorted(str(each) for each in offending)
    assert not told, "\n".join(told)


def test_every_module_is_on_a_floor() -> None:
    _none(module for module in _files() if not _is_root(module) and _inner(module)[0] not in FLOORS)


def test_the_page_of_architecture_has_these_floors_in_this_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| \[(\w+)\]\(", page, re.MULTILINE)) == (*FLOORS, *ROOMS["broker"])


def test_floors_import_downwards() -> None:
    level = {floor: number for number, floor in enumerate(FLOORS)}
    _none(
        each
        for each in _ours()
        if not _is_root(each.module)
        and not _is_root(each.of)
        and level[_inner(each.of)[0]] > level[_inner(each.module)[0]]
    )


def test_nobody_imports_the_root_but_for_its_exceptions() -> None:
    """What users import is made of the floors."""
    _none(each for each in _ours() if _is_root(each.of) and each.of != EVERYBODYS and not _is_root(each.module))
    _none(each for each in _imports(EVERYBODYS) if each.of in _files() and _inner(each.of)[0] != "base")


@pytest.mark.parametrize("floor", ROOMS)
def test_rooms_of_a_floor_import_downwards(floor: str) -> None:
    level = {f"{NAME}.{floor}.{room}": number for number, room in enumerate(ROOMS[floor])}
    depth = len(floor.split(".")) + 2

    def room(module: str) -> str:
        return ".".join(_folder(module).split(".")[:depth])

    there = {room(module) for module in _files() if _within(module, f"{NAME}.{floor}")} - {f"{NAME}.{floor}"}
    assert there == level.keys()
    last = len(level)
    _none(
        each
        for each in _ours()
        if _within(each.module, f"{NAME}.{floor}") and _within(each.of, f"{NAME}.{floor}")
        if level.get(room(each.of), last) > level.get(room(each.module), last)
    )


def test_no_folder_is_in_a_circle() -> None:
    between: dict[str, dict[str, Import]] = defaultdict(dict)
    for each in _ours():
        if not _is_root(each.module) and not _is_root(each.of) and _folder(each.module) != _folder(each.of):
            between[_folder(each.module)].setdefault(_folder(each.of), each)
    _none(_circles(between))


def test_no_module_is_in_a_circle_with_others_of_its_folder() -> None:
    between: dict[str, dict[str, Import]] = defaultdict(dict)
    for each in _ours():
        if _folder(each.module) == _folder(each.of) and not _is_root(each.module):
            between[each.module].setdefault(each.of, each)
    _none(_circles(between))


def _circles(between: Mapping[str, Mapping[str, Import]]) -> Iterator[str]:
    """A circle for each start that has one: the imports that it is made of."""
    for start in sorted(between):
        came: dict[str, Import] = {}
        left = [start]
        while left and start not in came:
            for there, by in between.get(left.pop(), {}).items():
                if there not in came:
                    came[there] = by
                    left.append(there)
        if start in came:
            yield f"circle of {start}, such as by {came[start]}"


def test_folders_hold_few_modules() -> None:
    modules: dict[str, int] = defaultdict(int)
    for module in _files():
        if _folder(module) != module:
            modules[_folder(module)] += 1
    _none(f"{folder} has {count} modules, more than {MAX_MODULES}" for folder, count in modules.items() if count > 20)


def test_every_folder_and_module_says_what_it_is() -> None:
    _none(f"{module} has no docstring" for module in _files() if not _read(module).docstring)


def _is_pure(module: str) -> bool:
    if any(_within(module, f"{NAME}.{folder}") for folder in PURE_FOLDERS):
        return True
    return bool(PURE.search(_read(module).docstring))


def test_pure_modules_do_no_io() -> None:
    """Of Kafka's floor they import the record, and modules that are pure themselves."""
    pure = {module for module in _files() if _is_pure(module)}
    assert len(pure) > 150
    _none(
        each
        for module in pure
        for each in _imports(module)
        if any(_within(each.of, io) for io in NO_IO)
        or (_within(each.of, f"{NAME}.kafka") and each.of not in {*pure, f"{NAME}.kafka.records"})
    )


def _nobody_but(modules: Callable[[str], bool], *libraries: str) -> None:
    _none(
        each
        for module in _files()
        if not modules(module)
        for each in _imports(module)
        if any(_within(each.of, library) for library in libraries)
    )


def test_only_kafka_s_floor_knows_its_clients() -> None:
    _nobody_but(lambda module: _within(module, f"{NAME}.kafka"), "confluent_kafka")


def test_only_spark_s_floor_knows_spark() -> None:
    """Beside it `pok spark` knows what may be missing."""
    _nobody_but(lambda module: _inner(module)[:1] == ["spark"] or module.startswith(f"{NAME}.cli"), "pyspark")


def test_no_module_imports_tests_benchmarks_examples_or_names_for_users() -> None:
    _none(
        each
        for module in _files()
        for each in _imports(module)
        if each.of.endswith(" for users") or any(_within(each.of, top) for top in ("tests", "benchmarks", "examples"))
    )


def test_headers_are_asked_for_in_the_one_way_that_bears_those_of_others() -> None:
    """`record.headers()` of confluent-kafka gives null pointers for a name that is no UTF-8."""
    _none(
        f"{module}:{line}: ask by kafka.records.headers_of"
        for module in _files()
        if not _within(module, f"{NAME}.spark")
        for line in _read(module).asks_for_headers
    )


def test_a_time_that_others_wrote_is_compared_with_the_brokers_clock_alone() -> None:
    """Nobody else knows the machine's clock, so nobody else can compare with it."""
    reads = {module.partition(".")[2]: _read(module).machine_time for module in _files()}
    _none(
        f"{module}:{line} reads the machine's clock: take one, and give it `node.clock`"
        for module, lines in reads.items()
        if module not in READS_MACHINE_TIME
        for line in lines
    )
    _none(f"{module} does not read it any more" for module in READS_MACHINE_TIME if not reads.get(module))


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "import time\nlater = time.time_ns",
        "from time import time as clock",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import date\ndate.today()",
        "from pulsar_on_kafka.base.clock import SystemClock",
    ],
)
def test_what_reads_the_machine_s_clock_is_found(text: str) -> None:
    assert len(list(_machine_time(list(ast.walk(ast.parse(text)))))) == 1
    assert not list(_machine_time(list(ast.walk(ast.parse("import time\ntime.monotonic()\nnode.clock.now_ms()")))))


def test_only_an_instance_makes_kafka_s_names_of_state() -> None:
    """Whoever made one by another way would write into the state of everybody, whatever instance a program is of."""
    _none(
        f"{module}: {name}"
        for module in _files()
        if _inner(module)[:1] not in (["mapping"], ["schema_compat"])
        for name in _read(module).names_of_state
    )


def test_what_is_subscripted_where_a_program_runs_is_generic_in_python_3_10() -> None:
    _none(
        f"{module}: {name}" for module in _files() for name in _read(module).subscripted if not SUBSCRIPTED.match(name)
    )


def test_a_class_that_is_subscripted_is_found_unless_in_an_annotation() -> None:
    text = "import logging as log\ndef f(a: log.StreamHandler[str]) -> None: ...\nclass A(log.StreamHandler[str]): ..."
    assert list(_subscripted(list(ast.walk(ast.parse(text))))) == ["logging.StreamHandler"]
