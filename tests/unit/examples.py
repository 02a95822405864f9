"""How many random examples a test gets that only looks for one odd value: more of them find nothing more."""

from hypothesis import settings

FEW = settings(max_examples=min(100, settings.default.max_examples if settings.default else 100))
