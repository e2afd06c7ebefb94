"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# No test asserts a time, and a busy machine is no failure.
settings.register_profile("logline", deadline=None)
settings.load_profile("logline")
