"""Property tests run on busy machines: no example has a deadline (the whole test has pytest's), nor has making one."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
