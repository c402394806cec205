"""uv, as tests call it: environments with other Pythons, and with other versions of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.documents import ROOT

ENVIRONMENTS: Final = ROOT / ".matrix"
"""Where they are made; `make clean` removes it."""


def uv(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """What it prints.

    Raises CalledProcessError: it failed, or is not installed.
    """
    return subprocess.run(
        [sys.executable, "-m", "uv", *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    ).stdout


def make_environment(place: Path, python: str | Path, *packages: str | Path) -> Path:
    """The Python of a new environment in which `packages` are installed, in the versions of the lock.

    Raises CalledProcessError: something could not be installed.
    """
    uv("venv", "--quiet", "--clear", "--python", python, place)
    constraint = str(ROOT / "requirements" / "dev.lock")
    uv("pip", "install", "--quiet", "--python", place, "--constraint", constraint, *packages)
    return place / "bin" / "python"
