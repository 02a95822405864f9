"""What every suite shares: the real clusters of `tests.cluster`, and Hypothesis profiles that print their seed."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.cluster.fixtures"]

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci", max_examples=500, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
