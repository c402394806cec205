"""`python -m tests.mutation MODULE ... --tests TEST ...`: how many of some small changes to modules their tests find.

Mutants are drawn by a seed from all of the modules given (files or folders); each runs the tests in a clone of this
checkout's last commit, or of `--root`'s, so that two commits can be compared. A mutant is caught when a test fails or
the tests take ten times as long. Those that live are printed: some change nothing that can be seen, the others name a
test that is missing. Exit status 1 when fewer than `--least` are caught.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.house import SOURCES
from tests.mutation.mutants import Mutant, mutants

_PYTEST: Final = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no")
_SLOWER: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition(":")[0])
    parser.add_argument("modules", nargs="+", help="files or folders, as seen from the root")
    parser.add_argument("--tests", nargs="+", required=True, help="what has to catch them; tests without a broker")
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: this one)")
    parser.add_argument("--count", type=int, default=100, help="mutants (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--least", type=int, default=0, help="caught mutants that are demanded")
    asked = parser.parse_args(arguments)
    drawn = draw(asked.root, asked.modules, asked.count, asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        clones: SimpleQueue[Path] = SimpleQueue()
        for number in range(asked.jobs):
            clones.put(_clone(asked.root, Path(folder) / str(number)))
        first = clones.get()
        longest_s = _SLOWER * _unchanged_s(first, asked.tests)
        clones.put(first)

        def lives(one: tuple[Path, Mutant]) -> bool:
            clone = clones.get()
            try:
                return _lives(clone, *one, asked.tests, longest_s)
            finally:
                clones.put(clone)

        with ThreadPoolExecutor(asked.jobs) as jobs:
            caught = 0
            for (file, mutant), alive in zip(drawn, jobs.map(lives, drawn), strict=True):
                caught += not alive
                if alive:
                    print(f"lives: {file}:{mutant.line}: {mutant.was!r} -> {mutant.becomes!r}", flush=True)
    print(f"caught {caught} of {len(drawn)} mutants (seed {asked.seed})")
    return int(caught < asked.least)


def draw(root: Path, modules: Sequence[str], count: int, seed: int) -> list[tuple[Path, Mutant]]:
    """`count` mutants of these modules, or all when there are fewer.

    Raises:
        SystemExit: there is no such module, or none has a mutant.
    """
    files: list[Path] = []
    for module in modules:
        found = sorted((root / module).rglob("*.py")) if (root / module).is_dir() else [root / module]
        files += [file.relative_to(root) for file in found if file.is_file()]
        if not files or not (root / module).exists():
            raise SystemExit(f"{module}: expected a Python file, or a folder with some, in {root}")
    every = [(file, mutant) for file in files for mutant in mutants((root / file).read_text())]
    if not every:
        raise SystemExit(f"{modules} have nothing to be changed")
    return random.Random(seed).sample(every, min(count, len(every)))


def _clone(root: Path, where: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", "--local", str(root.resolve()), str(where)], check=True)
    return where


def environment_of(clone: Path) -> dict[str, str]:
    """The environment in which Python imports the product from the clone, not from the checkout that is installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(clone / source) for source in SOURCES)}


def _unchanged_s(clone: Path, tests: Sequence[str]) -> float:
    """How long the tests take. Raises SystemExit when they fail as they are."""
    begun_s = time.monotonic()
    done = subprocess.run([sys.executable, *_PYTEST, *tests], cwd=clone, env=environment_of(clone), check=False)
    if done.returncode:
        raise SystemExit("the tests fail without any change")
    return time.monotonic() - begun_s


def _lives(clone: Path, file: Path, mutant: Mutant, tests: Sequence[str], longest_s: float) -> bool:
    at = clone / file
    before = at.read_text()
    at.write_text(mutant.source)
    try:
        command = [sys.executable, *_PYTEST, *tests]
        done = subprocess.run(
            command, cwd=clone, env=environment_of(clone), check=False, capture_output=True, timeout=longest_s
        )
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        at.write_text(before)


if __name__ == "__main__":
    raise SystemExit(main())
