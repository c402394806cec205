"""The fixtures and marks that FastStream's tests expect."""

from __future__ import annotations

import asyncio
import inspect
import os
from unittest.mock import MagicMock

import pytest

from tests.steps import Unique

collect_ignore = [] if os.environ.get("POK_FASTSTREAM") else ["test_faststream_base.py"]


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("asyncio", "slow", "connected"):
        config.addinivalue_line("markers", f"{mark}: a mark of FastStream's tests")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def queue(unique: Unique) -> str:
    return unique()


@pytest.fixture
def event() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def event2() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def event3() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def mock() -> MagicMock:
    return MagicMock()
