"""The tests on docs/testing.md pass, run by pytest and by unittest as users run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ROOT

pytestmark = pytest.mark.kafka

PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
OF_PYTEST, OF_UNITTEST = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TABLE = re.findall(r"^\| `(pok_\w+)` \|", PAGE, re.MULTILINE)


def run(where: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=150,
    )
    return done.stdout + done.stderr


@pytest.mark.long
def test_the_pytest_example_passes_on_a_broker_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(OF_PYTEST)
    assert "1 passed" in run(tmp_path, "pytest", "-q", POK_BOOTSTRAP="")


@pytest.mark.long
def test_xdist_workers_share_the_cluster_that_is_named(tmp_path: Path, bootstrap: str) -> None:
    (tmp_path / "test_orders.py").write_text(OF_PYTEST)
    (tmp_path / "test_cluster.py").write_text(
        f"def test_it_is_that_one(pok_broker, pok_url):\n    assert pok_broker.bootstrap == {bootstrap!r}\n"
        f"    assert pok_url == 'kafka://{bootstrap}'\n"
    )
    assert "2 passed" in run(tmp_path, "pytest", "-q", "-n", "2", POK_BOOTSTRAP=bootstrap)


def test_a_cluster_that_is_not_there_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(OF_PYTEST)
    said = run(tmp_path, "pytest", "-q", "--pok-broker", "external", POK_BOOTSTRAP="localhost:1")
    assert "no broker replies at POK_BOOTSTRAP=localhost:1: start that cluster, or unset it" in said
    assert "Traceback" not in said
    assert "1 error" in said


def test_the_unittest_example_passes(tmp_path: Path, bootstrap: str) -> None:
    (tmp_path / "test_orders.py").write_text(OF_UNITTEST)
    assert "Ran 1 test" in (said := run(tmp_path, "unittest", POK_BOOTSTRAP=bootstrap))
    assert said.rstrip().endswith("OK")


def test_the_page_has_the_plugins_fixtures(tmp_path: Path) -> None:
    listed = run(tmp_path, "pytest", "--fixtures", "-q")
    assert re.findall(r"^(pok_\w+)", listed, re.MULTILINE) == TABLE
