"""Every constant of SageSched, with the section that states it."""

SIMILARITY = 0.8
"""Cosine of sentence embeddings from which a past prompt counts as similar (sections 3.1 and 4.1)."""

WINDOW = 10_000
"""Past requests that are remembered, first in first out (footnote 3)."""

BUCKET_TOKENS = 200
"""Output tokens between two refreshes of the index (section 4.1, Fig. 13b).

Section 3.3 says ten buckets, which is the same for 2,000 tokens.
"""
