"""Which group members are known to be over."""

from __future__ import annotations

import subprocess
import sys

from layer.metadata.processes import is_over, member_client_id, membership_ended


def test_a_member_of_this_process_is_over_once_it_was_closed() -> None:
    client_id = member_client_id("app", "0123456789abcdef")
    assert not is_over(client_id)
    membership_ended(client_id)
    assert is_over(client_id)
    assert not is_over(member_client_id("app", "fedcba9876543210"))


def test_a_member_of_a_dead_process_of_this_machine_is_over() -> None:
    code = "from layer.metadata.processes import member_client_id; print(member_client_id('app', 'x' * 12))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert is_over(child.stdout.strip())


def test_nothing_is_known_of_others() -> None:
    assert not is_over("app-0123@another-host:1:2")
    assert not is_over("a-client-id-of-somebody's-own")
