"""Control events from a front-end: reports, urgency, discipline, mode and statistics."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, fields, replace
from itertools import islice
from typing import Any, get_args

from timely.core.errors import Conflict, EngineFailed, InvalidInput, TimelyError, UnknownName
from timely.core.hints import RequestHints
from timely.core.reports import ExecutionReport
from timely.core.utility import TimeUtility
from timely.disciplines import registry
from timely.disciplines.base import Discipline
from timely.disciplines.requirements import check_queue_discipline_needs
from timely.engines.base import JobView, Mode
from timely.engines.scheduler_core import EngineController
from timely.engines.vllm.engine_events import vllm_error_data
from timely.engines.vllm.request_state import VllmLiveRequests, VllmRequestState
from timely.engines.vllm.settings import SchedulerSettings

log = logging.getLogger(__name__)

LONGEST_STEP_S = 300.0
"""No report waits longer for a step to end."""

SHOWN_JOBS = 200
"""Most jobs that statistics list one by one."""

_JOB_FIELDS = tuple(field.name for field in fields(JobView))

Answer = dict[str, Any]


class VllmControlEvents:
    """Answers control events; harmless for a task that another engine holds.

    Args:
        controller: read at each event, since benchmarks replace it.
        offers: what the engine has that a discipline may need.
        take_value: appends a value to the context of a request.
        measures: usage of the KV cache, load, and the times of a recent step and decision.
        engine: number of this engine among several.
    """

    def __init__(
        self,
        controller: Callable[[], EngineController],
        live: VllmLiveRequests,
        settings: SchedulerSettings,
        offers: set[str],
        take_value: Callable[[VllmRequestState, str], None],
        measures: Callable[[], Mapping[str, Any]],
        engine: int = 0,
    ) -> None:
        self._controller = controller
        self._live = live
        self._settings = settings
        self._offers = offers
        self._take_value = take_value
        self._measures = measures
        self._engine = engine
        self._loader = ThreadPoolExecutor(1, "discipline")
        self._loads: dict[str, Future[Discipline]] = {}
        self._answers: dict[str, Callable[[Mapping[str, Any], float], Answer]] = {
            "report": self._report,
            "reports": lambda event, now: {
                "known": True,
                "answers": [self._answer_of_several(report, now) for report in event["reports"]],
            },
            "load_discipline": self._load,
            "discipline": self._switch,
            "mode": self._set_mode,
            "urgency": self._set_urgency,
            "eta": self._eta,
            "load": lambda event, now: {"known": True, **self._controller().reported_load()},
            "stats": lambda event, now: self.stats(now),
            "ping": lambda event, now: {"known": True},
            "requests": lambda event, now: {"requests": live.of_task(str(event["task_id"]))},
        }

    def answer(self, event: Mapping[str, Any], now: float) -> Answer:
        """The answer to an event at ``now``.

        ``{"kind": "report", "task_id", "report", "sent_s"}``: ``sent_s``, on this clock, is ``now`` by default.
        ``{"kind": "reports", "reports"}`` answers ``answers``, one to each of these events.
        ``{"kind": "load_discipline", "name"}`` answers ``loaded``, and loads beside the steps.
        ``{"kind": "discipline", "name"}``, ``{"kind": "mode", "name"}``,
        ``{"kind": "eta", "tuf": [ert_s, alpha, beta], "ahead"}`` answers the fields of ``ResponsePrediction``.
        ``ahead`` has a list for each engine, with ``[task_id, tuf, network_s, promised]`` of tasks on their way there.
        ``{"kind": "load"}`` answers what ``timely.routing.reported_load`` reads.
        ``{"kind": "stats"}``, ``{"kind": "ping"}``, ``{"kind": "urgency", "task_id", "urgency"}``.
        ``{"kind": "requests", "task_id"}`` answers the request ids of a task, for a cancel.
        Errors come back as data: ``{"error": {"code", "message", "where"}}``.
        """
        try:
            kind = event.get("kind")
            if kind not in self._answers:
                raise InvalidInput(f"unknown control event {kind!r}", where="kind")
            return self._answers[str(kind)](event, now)
        except TimelyError as error:
            return {"known": not isinstance(error, InvalidInput), "error": vllm_error_data(error)}

    def _answer_of_several(self, event: Mapping[str, Any], now: float) -> Answer:
        """The answer to one of several events: whatever is wrong with it, the others are answered."""
        try:
            return self.answer(event, now)
        except Exception as error:
            log.exception("a report failed")
            return {"known": True, "error": vllm_error_data(EngineFailed(f"{type(error).__name__}: {error}"))}

    def _report(self, event: Mapping[str, Any], now: float) -> Answer:
        report = _vllm_report_with_age(ExecutionReport(**event["report"]), now - event.get("sent_s", now))
        requests = self._live.of_task(str(event["task_id"]))
        if not requests:
            return {"known": False}
        state = self._live[requests[0]]
        awaited_segment = state.job.awaiting
        job = self._controller().report(state.job.job_id, report, now)
        # A repeat of an earlier value must not be taken for the one that is awaited now.
        if report.kind == "value" and report.segment == awaited_segment and report.value is not None:
            self._take_value(state, report.value)
        return {"known": job is not None}

    def _load(self, event: Mapping[str, Any], now: float) -> Answer:
        name = str(event["name"])
        load = self._loads.get(name)
        if load is None:
            load = self._loads[name] = self._loader.submit(self._create, name)
        if load.done() and load.exception() is not None:
            del self._loads[name]
            load.result()
        return {"known": True, "loaded": load.done()}

    def _create(self, name: str) -> Discipline:
        check_queue_discipline_needs(registry.load_discipline(name).info, self._offers)
        return self._controller().create(name)

    def _switch(self, event: Mapping[str, Any], now: float) -> Answer:
        name = str(event["name"])
        load = self._loads.pop(name, None)
        fresh = self._create(name) if load is None else load.result()
        self._controller().switch(name, now, fresh)
        return {"known": True}

    def _set_urgency(self, event: Mapping[str, Any], now: float) -> Answer:
        requests = self._live.of_task(str(event["task_id"]))
        for request_id in requests:
            self._controller().set_urgency(request_id, event["urgency"], now)
        return {"known": bool(requests)}

    def _eta(self, event: Mapping[str, Any], now: float) -> Answer:
        tasks = event["ahead"][self._engine] if "ahead" in event else ()
        ahead = [
            RequestHints(utility=TimeUtility(*tuf), network_s=network_s, promised=promised)
            for task_id, tuf, network_s, promised in tasks
            if not self._live.of_task(str(task_id))
        ]
        prediction = self._controller().predict_response(TimeUtility(*event["tuf"]), now, ahead)
        return {"known": True, **asdict(prediction)}

    def _set_mode(self, event: Mapping[str, Any], now: float) -> Answer:
        """Another serving mode, for benchmarks that compare modes on one warm engine; only while idle."""
        name = str(event["name"])
        if name not in get_args(Mode):
            raise UnknownName("mode", name, get_args(Mode), where="mode")
        if self._live:
            raise Conflict(f"{len(self._live)} generations are being served in another mode", where="mode")
        self._settings.mode = name  # type: ignore[assignment]
        return {"known": True}

    def stats(self, now: float) -> Answer:
        """Counters since the start, states of the live requests, and what ``measures`` says."""
        controller = self._controller()
        counts = {"waiting": 0, "running": 0, "parked": 0, "blocked": 0, "evicted": 0}
        for state in self._live:
            counts[state.state(now)] += 1
        counts["waiting"] += counts.pop("evicted")
        # (``asdict`` takes several times as long, and a step waits for the answer.)
        views = (
            JobView.of(state.task_id, state.job, state.state(now), now)
            for state in islice(self._live, SHOWN_JOBS)
        )
        return {
            "discipline": controller.discipline.info.name,
            "mode": self._settings.mode,
            "now_s": now,
            **counts,
            **self._measures(),
            **controller.counters(),
            "jobs": [{name: getattr(view, name) for name in _JOB_FIELDS} for view in views],
            "paces": controller.paces.robots(),
        }


def _vllm_report_with_age(report: ExecutionReport, waited_s: float) -> ExecutionReport:
    """The report, older by its wait in the queue; unchanged when the sender's clock is not this host's."""
    if not 0.0 < waited_s < LONGEST_STEP_S:
        return report
    return replace(report, age_s=report.age_s + waited_s)
