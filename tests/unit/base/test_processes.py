"""Processes and group members that are known to be over."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pulsar_on_kafka.base.processes import is_dead_process, is_over, member_client_id, membership_ended, this_process
from tests.pid_namespaces import REFUSED, are_permitted, in_own_pid_namespace

_SAY = "from pulsar_on_kafka.base.processes import member_client_id; print(member_client_id('app', 'x' * 12))"


def said_by(*command: str) -> str:
    child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return child.stdout.strip()


def test_a_member_of_this_process_is_over_once_it_was_closed() -> None:
    client_id = member_client_id("app", "0123456789abcdef")
    assert not is_over(client_id)
    membership_ended(client_id)
    assert is_over(client_id)
    assert not is_over(member_client_id("app", "fedcba9876543210"))


def test_a_member_of_a_dead_process_of_this_machine_is_over() -> None:
    assert is_over(said_by(sys.executable, "-c", _SAY))


def test_a_process_that_only_waits_to_be_reaped_is_dead() -> None:
    ask = "from pulsar_on_kafka.base.processes import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", ask], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    process = child.stdout.readline().strip()
    assert not is_dead_process(process)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead_process(process)
    child.communicate()
    assert is_dead_process(process)


@pytest.mark.skipif(not are_permitted(), reason=REFUSED)
def test_one_with_the_same_host_name_in_another_pid_namespace_is_not_judged() -> None:
    """Its process id and start time say nothing here: F5."""
    assert not is_over(said_by(*in_own_pid_namespace([sys.executable, "-c", _SAY])))
    host, pid, started, machine = this_process().split(":")
    load = "from pulsar_on_kafka.base.processes import is_dead_process as d"
    there = f"{load}; print(d('{host}:999999:{started}:{machine}'))"
    assert said_by(sys.executable, "-c", there) == "True"
    assert said_by(*in_own_pid_namespace([sys.executable, "-c", there])) == "False"
    assert pid


@pytest.mark.skipif(not are_permitted(), reason=REFUSED)
def test_who_sees_the_processes_of_another_namespace_judges_nobody() -> None:
    """`/proc` is that of the machine, process ids are those of the namespace."""
    command = [part for part in in_own_pid_namespace([sys.executable, "-c", _SAY]) if part != "--mount-proc"]
    client_id = said_by(*command)
    assert client_id.endswith(":")
    assert not is_over(client_id)


def test_what_was_written_before_the_machine_was_part_of_it_is_not_judged() -> None:
    host, _, started, machine = this_process().split(":")
    assert is_dead_process(f"{host}:999999:{started}:{machine}")
    assert not is_dead_process(f"{host}:999999:{started}")
    assert not is_dead_process(f"{host}:999999:{started}:")
    assert not is_dead_process(f"{host}:999999:{started}:another-boot-1-2")


@pytest.mark.parametrize(
    "process", ["", ":::", "app@x", "another-host:1:2", "h:" + "9" * 5_000 + ":1:m", "a-client-id-of-somebody's-own"]
)
def test_nothing_is_known_of_others(process: str) -> None:
    assert not is_dead_process(process)
    assert not is_over(f"app-0123@{process}")
    assert not is_over(process)
