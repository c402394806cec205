"""Property tests run on busy machines: no example has a deadline (the whole test has pytest's)."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("project", deadline=None)
settings.load_profile("project")
