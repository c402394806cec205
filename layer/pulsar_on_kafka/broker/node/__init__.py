"""State that all clients of a process share for one cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_on_kafka.base.role_state import RunsRoles

begin_standing_in: Callable[..., RunsRoles]
"""Begins the roles of a stand-in on a `Node`. The package's root hands it in: the service is made of Clients and lies
above them, and the root, which is imported before any module of it, is all that lies above both."""
