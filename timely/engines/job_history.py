"""Brings a new job to where it was before a restart."""

import contextlib

from timely.core.errors import Conflict
from timely.core.execution import ExecutionTrack
from timely.core.job import Job
from timely.engines.base import PastReport, PlanHistory


def restore_engine_job(job: Job, track: ExecutionTrack, history: PlanHistory) -> None:
    """Repeat what happened to the job, in order. No counter of the engine changes.

    Its whole context is to be computed, and its due time is left to the caller. Segments of plans that were replaced
    keep their robot busy. Their tokens are not computed, and no value of theirs is awaited.
    """
    table, row = job.table, job.row
    for event in history.events:
        if isinstance(event, PastReport):
            _repeat_engine_report(job, track, event)
            continue
        own = event.index >= history.replaced_segments
        if own:
            table.output_tokens[row] += event.tokens
            table.prefill_left[row] += event.tokens
        table.segment[row] += 1
        track.release(event.segment())
        job.parked = job.spec.segmented
        if own and job.parked and event.blocking and job.awaiting is None:
            job.awaiting = event.index


def _repeat_engine_report(job: Job, track: ExecutionTrack, past: PastReport) -> None:
    """Take a report of the past; one that was refused then is refused again."""
    with contextlib.suppress(Conflict):
        track.report(past.report, past.at_s)
        if past.report.kind == "value" and job.awaiting == past.report.segment:
            job.answer()
