"""How long the property tests search: a moment by default, hours with ``HYPOTHESIS_PROFILE=nightly``."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=50, deadline=None)
settings.register_profile(
    "nightly",
    max_examples=20_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("nightly" if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else "quick")
