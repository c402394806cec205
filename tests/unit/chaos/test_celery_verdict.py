"""The judge of Celery's fleets finds what was lost, and tells runs again after a kill from those for no reason."""

from __future__ import annotations

from tests.chaos.celery_fleet import REVOKED_FROM, Run, judge


def test_a_task_that_was_cut_short_may_run_again() -> None:
    runs = [
        Run(1, 0, "w1", 10.0, None),
        Run(1, 0, "w2", 12.0, 12.1),
        Run(2, 0, "w1", 9.0, 10.45),
        Run(2, 0, "w2", 12, 13),
    ]
    verdict = judge(runs, range(1, 3), {"w1": 10.5})
    assert (verdict.lost, verdict.unexplained) == ([], [])
    assert verdict.again == {1: 0.0, 2: 10.5 - 10.45}


def test_a_retry_that_was_sent_twice_is_explained_by_its_first_run() -> None:
    runs = [
        Run(1, 0, "w1", 10.0, None),
        Run(1, 0, "w2", 11.0, None),
        Run(1, 1, "w2", 12.0, 12),
        Run(1, 1, "w3", 12, 12),
    ]
    assert judge(runs, [1], {"w1": 10.1}).unexplained == []


def test_other_runs_again_losses_and_revoked_runs_are_found() -> None:
    runs = [
        Run(1, 0, "w1", 1.0, 1.1), Run(1, 0, "w2", 30.0, 30.1),  # durable long before the kill
        Run(2, 0, "w2", 2.0, 2.1), Run(2, 0, "w2", 3.0, 3.1),
        Run(REVOKED_FROM, 0, "w2", 4.0, 4.1),
    ]  # fmt: skip
    verdict = judge(runs, [1, 2, 3], {"w1": 20.0})
    assert (verdict.lost, verdict.unexplained, verdict.revoked_runs) == ([3], [1, 2], [REVOKED_FROM])
