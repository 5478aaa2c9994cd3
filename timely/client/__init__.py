"""The client library of robot programs: request a plan, execute its segments as they arrive, report the execution.

It depends on httpx and ``timely.core`` only. A robot program in 15 lines::

    from timely.client import URGENT, TimelyClient

    with TimelyClient("http://127.0.0.1:8000") as timely:
        plan = timely.submit(
            "Find the scissors and go there", skill_set="drone", robot="tello", agent="drone-3", utility=URGENT
        )
        for segment in plan:  # the next one is being generated while this one flies
            plan.report_started(segment)
            outcome = drone.fly(segment.text)  # your driver; segment.calls has skills and arguments
            if segment.blocking:
                plan.report_value(segment, outcome.value)
            elif outcome.ok:
                plan.report_done(segment, elapsed_s=outcome.seconds)
            else:
                plan.report_failed(segment, outcome.reason)
        print(plan.result.outcome, plan.result.response_time_s, plan.result.utility)

``AsyncTimelyClient`` is the same with ``await`` and ``async for``. A lost connection is opened again without the
program's help; each segment comes exactly once and in order. Every wait has a deadline. The errors are those of
``timely.core.errors``.
"""

from timely.client.async_client import AsyncTimelyClient
from timely.client.async_stream import AsyncTaskStream
from timely.client.events import Call, Segment, StopOrder, TaskResult
from timely.client.sync_client import TimelyClient
from timely.client.sync_stream import TaskStream
from timely.core.reports import ExecutionReport
from timely.core.utility import NORMAL, URGENT, TimeUtility

__all__ = [
    "NORMAL",
    "URGENT",
    "AsyncTaskStream",
    "AsyncTimelyClient",
    "Call",
    "ExecutionReport",
    "Segment",
    "StopOrder",
    "TaskResult",
    "TaskStream",
    "TimeUtility",
    "TimelyClient",
]
