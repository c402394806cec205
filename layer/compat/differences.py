"""Explained differences: a TOML file of `"area.scenario" = "why this difference is wanted"`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OURS: Final = Path(__file__).with_name("scenarios") / "differences.toml"
"""The reasons for the differences that this package has."""


class BadDifferences(Exception):
    """A file of explained differences that cannot be used; the message is one line."""


def read_differences(file: Path) -> dict[str, str]:
    """Reasons by the scenario's name.

    Raises:
        BadDifferences: the file is not there, is no TOML, or holds something else than reasons.
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadDifferences(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadDifferences(f"{file} is no TOML: {error}") from error
    for name, reason in found.items():
        if not isinstance(reason, str) or not reason.strip():
            raise BadDifferences(f'{file}: expected "{name}" = "a reason", got {reason!r:.60}')
    return {name: str(reason) for name, reason in found.items()}
