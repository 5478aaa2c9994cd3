"""Every constant of TimelyLLM's scheduler, with the section that states it."""

SEGMENT_GENERATION_S = 0.090
"""``G`` of Eq. 4 for every segment, seconds (section 7.1)."""

LONGEST_SEGMENT_TOKENS = 10
"""Maximum segment length for admission, tokens (section 7.1)."""

SUSPENDED_ERT_S = 0.0
"""ERT of a suspended generation's utility function, seconds (section 4.2)."""
