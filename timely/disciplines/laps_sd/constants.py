"""The constants of LAPS-SD: the paper states one range and leaves the others open."""

QUEUES = 4
"""K; the best values of Fig. 6 are 4 and 6."""

FIRST_QUEUE_S = 1.0
"""S_1^up, seconds; not in the paper.

The first queue should hold the service of a short request after it has become perceptible.
Otherwise all requests are explored before any is finished.
"""

FACTOR = 2.0
"""M of section 4.2, the ratio of successive thresholds; not in the paper."""

STABLE_ROUNDS = 6
"""gamma of section 4.3, consecutive rounds; not in the paper."""

STABLE_SPREAD = 0.1
"""delta of section 4.3, the largest difference of acceptance within them; not in the paper."""
