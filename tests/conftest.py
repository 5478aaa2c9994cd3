"""What all tests share: how hypothesis looks for counterexamples."""

from __future__ import annotations

from hypothesis import settings

# Whether an example takes 0.1 or 0.3 s says how busy the machine is. Timings belong into benchmarks.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
