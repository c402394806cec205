"""Tests and measurements."""

import os

# Clients that live for minutes would begin to do a service's roles beside what is tested; what tests that says so.
os.environ.setdefault("POK_STAND_IN", "0")
