"""The example of a fleet counts right, without a broker: its verdict sees what is wrong."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(_EXAMPLES))
    return importlib.import_module("worker_fleet")


def test_orders_are_billed_refused_and_buried_as_they_say(fleet: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = importlib.import_module("orders_worker")
    monkeypatch.setattr(worker, "WORK_S", 0.0)
    assert worker.bill_for(fleet.order(1), 0) == {"id": 1, "total": "1.01"}
    with pytest.raises(worker.PrinterBusy, match="order 10: the printer is busy"):
        worker.bill_for(fleet.order(10), 0)
    assert worker.bill_for(fleet.order(10), 1) == {"id": 10, "total": "1.10"}
    for redeliveries in range(worker.MAX_REDELIVERIES + 1):
        with pytest.raises(KeyError):
            worker.bill_for(fleet.order(49), redeliveries)


def test_the_verdict_sees_what_is_lost_and_what_should_not_be_there(fleet: ModuleType) -> None:
    orders = [fleet.order(number) for number in range(100)]
    bills = [(number, f"worker-{number % 2}") for number in range(100) if number not in (49, 99)]
    well = {"bills": bills, "dead": [49, 99]}

    def verdict(*, exit_codes: tuple[int, ...] = (0, 0), **found: object) -> bool:
        answer: bool = fleet.show_verdict(orders, fleet.Found(**{**well, **found}), list(exit_codes))
        return answer

    assert verdict()
    assert verdict(bills=[*bills, bills[0]], dead=[49, 99, 99]), "at least once"
    assert not verdict(bills=bills[1:])
    assert not verdict(bills=[*bills, (100, "worker-1")])
    assert not verdict(dead=[49])
    assert not verdict(dead=[49, 99, 1])
    assert not verdict(exit_codes=(0, -9))


@pytest.mark.parametrize("wrong", [("--workers", "0"), ("--workers", "65"), ("--orders", "49")])
def test_numbers_out_of_range_are_refused_with_what_is_possible(
    fleet: ModuleType, wrong: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["worker_fleet.py", *wrong])
    with pytest.raises(SystemExit, match="2"):
        fleet.main()
    assert f"{wrong[0]} {wrong[1]}: " in capsys.readouterr().err
