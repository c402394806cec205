"""Scenarios: what they are, where they come from, how they are chosen."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from tests.compat.harness.driver import ScenarioRun

Play: TypeAlias = Callable[[ScenarioRun], None]

TIME_LIMIT_S: Final = 60.0
"""How long one side of a scenario may take, unless it says otherwise."""

_BUILT_IN: Final = "tests.compat.scenarios"


class ScenarioError(Exception):
    """A folder, file or name of scenarios that cannot be used; the message is one line."""


class PulsarClient(str, Enum):
    """The official client that drives Pulsar. Here it is always our SDK."""

    PYTHON = "python"
    JAVA = "java"
    """For what only that one has."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that both sides should do alike. `name` is `area.function`; `time_limit_s` holds for each side.

    A `secured` one is played on clusters with TLS, logins by token and authorization (`compat.secured`).
    """

    name: str
    area: str
    title: str
    time_limit_s: float
    play: Play
    client: PulsarClient = PulsarClient.PYTHON
    secured: bool = False


_registered: dict[str, Scenario] = {}


def scenario(
    *,
    area: str,
    title: str,
    time_limit_s: float = TIME_LIMIT_S,
    client: PulsarClient = PulsarClient.PYTHON,
    secured: bool = False,
) -> Callable[[Play], Play]:
    """Make a function of one `ScenarioRun` a scenario.

    Raises:
        ScenarioError: another function has this area and name.
    """

    def register(play: Play) -> Play:
        found = Scenario(f"{area}.{play.__name__}", area, title, time_limit_s, play, client, secured)
        known = _registered.setdefault(found.name, found)
        if known.play.__module__ != play.__module__ or known.play.__qualname__ != play.__qualname__:
            raise ScenarioError(
                f"two scenarios are called {found.name}: in {known.play.__module__} and in {play.__module__}"
            )
        _registered[found.name] = found
        return play

    return register


def load(folders: Iterable[Path] = ()) -> dict[str, Scenario]:
    """All scenarios by name: the built-in ones, and those of every `*.py` file in `folders` (not below them).

    Raises:
        ScenarioError: a folder that is none, a file that cannot be imported, a name that is taken.
    """
    package = importlib.import_module(_BUILT_IN)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{_BUILT_IN}.{module.name}")
    for folder in folders:
        if not folder.is_dir():
            raise ScenarioError(f"{folder} is not a folder of scenarios")
        for file in sorted(folder.glob("*.py")):
            _import_file(file.resolve())
    return dict(sorted(_registered.items()))


def built_in() -> dict[str, Scenario]:
    """Those of `tests/compat/scenarios` by name, whatever else this process has loaded."""
    return {name: found for name, found in load().items() if found.play.__module__.startswith(f"{_BUILT_IN}.")}


def choose(scenarios: Iterable[Scenario], pattern: str | None) -> list[Scenario]:
    """The one of that name, or those whose name matches the shell pattern or holds it as a part; all for None.

    Raises:
        ScenarioError: there is none.
    """
    known = list(scenarios)
    if pattern is None:
        return known
    exact = [found for found in known if found.name == pattern]
    chosen = exact or [found for found in known if fnmatch.fnmatch(found.name, pattern) or pattern in found.name]
    if not chosen:
        raise ScenarioError(f"no scenario matches {pattern!r}; there are {len(known)}, such as {known[0].name}")
    return chosen


def _import_file(file: Path) -> None:
    # The path is in the module's name, so that two folders may both hold an orders.py.
    name = f"pok_compat_scenarios_{abs(hash(str(file.parent))):x}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ScenarioError:
        raise
    except Exception as error:  # the module runs, so anything can come of it
        raise ScenarioError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
