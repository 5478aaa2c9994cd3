"""Every constant that the semantic scheduling paper states, with the section; costs are in profiles (appendix B)."""

URGENCY_LEVELS = 5
"""Levels of the Emergency Severity Index, 0 the most urgent (section 3.1)."""

BUCKET_TOKENS = 50
"""Tokens of a length bucket in the simulated experiments: ten buckets; in the published simulation only."""

BATCH = 16
"""Requests in a batch, ``b`` of Alg. 2; in the published simulation only."""

BASELINE_BATCH = 12
"""Requests in a batch of the baselines; in the published simulation only."""

SMALL_BATCH = 8
"""Requests in a batch on the machines of Fig. 4; in the published simulation only."""

SPIKE_REQUESTS = 100
"""Most requests at once in a spike (section 4)."""

CONCURRENT_REQUESTS = 5
"""Most requests at once outside of spikes (section 4)."""
