"""Goes on with the tasks of an earlier life of the server, from the records that it left.

Segments that were sent keep their event ids and are not sent again. A plan in generation goes on behind them, from its
recorded tokens, if prompt, skill set, robot and model are the same. Otherwise the same task gets a new plan, whose
prompt says what was sent: the robot executes that. Inside an open loop or branch no other plan can go on. Nor can it
behind segments whose skills are gone, or without its skill set or robot. That plan ends with the code ``interrupted``,
and its client may re-plan.
"""

import gc
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from timely.core.errors import Conflict, TimelyError
from timely.core.job import Segment
from timely.core.json_log import log_fields
from timely.core.record_log import known_record_fields
from timely.core.reports import ExecutionReport
from timely.core.utility import TimeUtility
from timely.disciplines.predictors.request_annotator import Annotation
from timely.disciplines.predictors.urgency import Assignment
from timely.engines.base import GenerationDone, PastReport, SegmentReady
from timely.principals import Principal
from timely.server.access.usage import BucketLevel, PrincipalUsage
from timely.server.settings import ServerSettings
from timely.server.tasks.admission import TaskAdmission
from timely.server.tasks.lifecycle import TaskLifecycle, task_execution_failure
from timely.server.tasks.request import TaskRequest
from timely.server.tasks.task import Task, TaskEnding
from timely.server.tasks.task_log import Record, TaskLog
from timely.server.tasks.task_table import TaskTable

log = logging.getLogger(__name__)

STOPPED = TaskEnding("cancelled", "", "the fleet was stopped", cause="fleet_stop")
OTHER_SOURCE = "the server was restarted with another model, skill set or robot profile"
INSIDE_A_BLOCK = TaskEnding("failed", "interrupted", f"{OTHER_SOURCE}, inside a loop or branch", "server")
UNREADABLE = TaskEnding(
    "failed", "interrupted", f"{OTHER_SOURCE}, in which its segments are no plan", "server"
)


@dataclass(frozen=True, slots=True)
class TaskRecovery:
    """Makes tasks of records."""

    admission: TaskAdmission
    lifecycle: TaskLifecycle
    table: TaskTable
    log: TaskLog
    usage: PrincipalUsage
    settings: ServerSettings

    async def restore(self, records: Sequence[Record], now: float, *, stopped: bool) -> None:
        """Bring back all tasks that are not over for longer than their retention."""
        for record in records:
            if record["kind"] == "task":
                self._count_request(record)
        # The records stay, and what is made of them: a search for garbage finds none, and takes a fourth of the time.
        gc.disable()
        try:
            states = await self._restore(records, now, stopped=stopped)
        finally:
            gc.enable()
        if any(states.values()):
            log.warning(
                "tasks of an earlier start: %s", ", ".join(f"{n} {name}" for name, n in states.items())
            )

    async def _restore(self, records: Iterable[Record], now: float, *, stopped: bool) -> dict[str, int]:
        """``restore``; returns the number of tasks by state."""
        states = {"generating": 0, "executing": 0, "ended": 0}
        for task_id, own in _group_records_by_task(records).items():
            if own[0]["kind"] != "task" and any(record["kind"] == "settled" for record in own):
                # A full disk got room from the file of its first record before it took that the task is forgotten.
                self.log.forget(task_id)
                continue
            try:
                if own[0]["kind"] != "task":
                    raise Conflict("its first record is lost", where="tasks")
                task, fingerprint = await self._task(task_id, own)
            except Exception as error:
                # A server that does not start would lose all tasks.
                with log_fields({"task_id": task_id}):
                    log.error("task %s of an earlier start cannot be restored: %r", task_id, error)
                self.log.forget(task_id)
                continue
            if task.state == "ended" and task.settled_s + self.settings.retention_s <= now:
                self.log.forget(task_id)
                continue
            states[task.state] += 1
            generation = None
            if stopped and task.state != "ended" and task.outcome in (None, "complete"):
                # The kill came before the record of what the stop did to this task.
                task.ending = STOPPED
            if task.state == "generating":
                if task.ending is None and fingerprint != task.fingerprint:
                    await self._replan(task)
                if task.ending is None:
                    generation = self.admission.generation(task)
            with log_fields(task.log_fields):
                self.lifecycle.adopt(task, generation)
            if task.replans is not None:
                old = self.table.find(task.replans, Principal(task.owner, frozenset()))
                if old is not None and old.request.agent == task.request.agent:
                    old.replanned_as = task.name
        return states

    def _count_request(self, record: Record) -> None:
        shift_s, level = record["shift_s"], None
        if (bucket := record.get("bucket")) is not None:
            level = BucketLevel(bucket[0], bucket[1] + shift_s)
        self.usage.restore(record["owner"], record["arrival_s"] + shift_s, level)

    async def _replan(self, task: Task) -> None:
        """Let the present model, skill set and robot go on with a task behind what was sent; sets the ending if not."""
        if task.parser is not None and task.parser.depth:
            task.ending = INSIDE_A_BLOCK
            return
        try:
            await self.admission.replan(task, OTHER_SOURCE)
        except TimelyError as error:
            task.ending = TaskEnding("failed", "interrupted", f"{OTHER_SOURCE}: {error.message}", error.where)
            return
        self.log.write_replan(task)

    async def _task(self, task_id: str, records: list[Record]) -> tuple[Task, str]:
        """A task and the fingerprint of its plan's source."""
        first = records[0]
        # It was checked on its arrival, and the principal's limits and a re-plan have changed it since.
        own: dict[str, Any] = first["request"]
        request = TaskRequest.model_construct(
            **own | {"tuf": TimeUtility(**known_record_fields(TimeUtility, own["tuf"]))}
        )
        annotation = None
        if first["annotation"] is not None:
            level, source, confidence, expected_tokens = first["annotation"][:4]
            annotation = Annotation(Assignment(level, source, confidence), expected_tokens)
        task = await self.admission.restore(
            request,
            task_id=task_id,
            token="",
            token_digest=first["token"],
            annotation=annotation,
            arrival_s=first["arrival_s"] + first["shift_s"],
            network_s=first["network_s"],
            kv_tokens=first.get("kv_tokens", 0),
            eta_s=first.get("eta_s"),
            value_wait_s=first.get("value_wait_s") or math.inf,
        )
        task.owner, task.replans, task.executed_before = first["owner"], first["replans"], first["executed"]
        task.events.append("accepted", task.acceptance())
        sent_count = next((record["segments"] for record in records if record["kind"] == "generated"), None)
        fingerprint: str = first["fingerprint"]
        for record in records[1:]:
            shift_s = record["shift_s"]
            if record["kind"] == "segment":
                # A plan that ended early may have a last segment that was kept and not sent.
                if sent_count is None or record["data"]["index"] < sent_count:
                    _restore_task_segment(task, record, shift_s, goes_on=sent_count is None)
            elif record["kind"] == "report":
                _restore_task_report(
                    task,
                    ExecutionReport(**known_record_fields(ExecutionReport, record["report"])),
                    record["at_s"] + shift_s,
                )
            elif record["kind"] == "replanned":
                self.admission.set_history(task, record["history"])
                fingerprint, task.ending = record["fingerprint"], None
            elif record["kind"] == "urgency" and task.annotation is not None:
                task.annotation = replace(task.annotation, urgency=Assignment(record["level"], "operator"))
            elif record["kind"] == "ending":
                task.ending = _restored_task_ending(record["ending"])
            elif record["kind"] == "generated":
                _restore_task_generation(task, record, shift_s)
            elif record["kind"] == "settled":
                task.state, task.settled_s = "ended", record["at_s"] + shift_s
                if record.get("ending") is not None:
                    task.ending = _restored_task_ending(record["ending"])
        if task.state != "ended" and task.track.failed is not None:
            task.ending = _restored_task_failure(task)
        if task.state == "ended" and not task.events.closed:
            # A power failure took the record of its last event: without one, readers would wait for ever.
            task.state = "generating"
        return task, fingerprint


def _group_records_by_task(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each task that is not forgotten, from its admission on if that is there."""
    tasks: dict[str, list[Record]] = {}
    for record in records:
        task_id = record["task"]
        if record["kind"] == "task":
            tasks[task_id] = [record]
        elif record["kind"] == "forgotten":
            tasks.pop(task_id, None)
        else:
            tasks.setdefault(task_id, []).append(record)
    return tasks


def _restore_task_segment(task: Task, record: Record, shift_s: float, *, goes_on: bool) -> None:
    data: dict[str, Any] = record["data"]
    segment = Segment(
        index=data["index"],
        text=data["text"],
        tokens=data["tokens"],
        ready_s=record["ready_s"] + shift_s,
        execution_s=record["execution_s"],
        blocking=data["blocking"],
        pace=record["pace"],
    )
    if task.parser is not None and goes_on:
        # Later segments are parsed inside the blocks that this one leaves open.
        try:
            task.parser.feed(segment.text)
        except TimelyError:
            task.ending = UNREADABLE
    task.track.release(segment)
    task.calls.append(data["calls"])
    task.events.append("segment", data)
    task.past.append(
        SegmentReady.of(
            task.task_id,
            segment,
            blocking=segment.blocking,
            token_ids=record.get("token_ids", ()),
            last=record.get("last", False),
        )
    )


def _restore_task_report(task: Task, report: ExecutionReport, at_s: float) -> None:
    try:
        task.track.report(report, at_s)
    except Conflict:
        log.debug("task %s: a report of an earlier start is refused again", task.task_id)
    task.remember(report, at_s)


def _restored_task_ending(values: list[Any]) -> TaskEnding:
    return TaskEnding(*values[: len(fields(TaskEnding))])


def _restored_task_failure(task: Task) -> TaskEnding:
    """The ending of a plan whose robot had reported a failure."""
    reports = [event.report for event in task.past if isinstance(event, PastReport)]
    return task_execution_failure(next(report for report in reports if report.kind == "failed"))


def _restore_task_generation(task: Task, record: Record, shift_s: float) -> None:
    done: dict[str, Any] | None = record["done"]
    if done is not None:
        for name in ("first_token_s", "last_token_s"):
            done[name] = None if done[name] is None else done[name] + shift_s
        task.done = GenerationDone(**known_record_fields(GenerationDone, done))
    if len(task.track.segments) < record["segments"]:
        raise Conflict("a record of its segments is lost", where="tasks")
    task.ending = _restored_task_ending(record["ending"])
    task.state, task.generated_s = "executing", record["at_s"] + shift_s
    task.events.append(record["name"], record["data"], last=True)
