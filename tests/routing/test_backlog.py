"""What routers of other servers read of an engine: the work of runnable jobs and the memory of parked ones."""

from __future__ import annotations

import pytest

from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT
from timely.engines.step_time.learned import FixedSpeed
from timely.routing.forecast import routing_backlog_s, routing_evictable_blocks

SPEED = FixedSpeed(0.02, 0.001, 0.0005)


def test_the_backlog_of_each_class_is_the_work_of_its_runnable_jobs() -> None:
    table = JobTable()
    for number, utility in enumerate((URGENT, NORMAL, NORMAL)):
        hints = RequestHints(utility=utility)
        table.add(JobSpec(number, 0.0, hints, prompt_tokens=100, plain=number == 2))
    backlog = routing_backlog_s(table, SPEED, 0.0)
    assert backlog["urgent"] == backlog["normal"] == backlog["chat"] > 100 * 0.0005
    table.resume_s[1:] = 5.0
    assert routing_backlog_s(table, SPEED, 0.0) == {"urgent": backlog["urgent"], "normal": 0.0, "chat": 0.0}
    assert routing_backlog_s(table, SPEED, 5.0) == pytest.approx(backlog)


def test_the_memory_of_parked_jobs_can_be_had_without_what_they_share() -> None:
    table = JobTable()
    for number in range(3):
        table.add(JobSpec(number, 0.0))
    table.blocks[:] = 10
    table.shared_blocks[:] = 4
    table.resident[:2] = True
    assert routing_evictable_blocks(table, 0.0) == 0
    table.resume_s[:] = 5.0
    assert routing_evictable_blocks(table, 0.0) == 12
