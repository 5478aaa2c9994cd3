"""The discipline in charge of all live jobs: its hooks, switches to another one, and what replaces one that fails."""

import logging
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from timely.core.errors import EngineFailed, InvalidInput, TimelyError
from timely.core.job import Job, JobSpec, JobTable
from timely.disciplines.base import Discipline, Speed, StepLimits, StepPlan
from timely.disciplines.registry import create_discipline

FALLBACK = "fcfs"
"""Serves when another discipline has failed, in engines with robots."""

log = logging.getLogger(__name__)


class ActiveEngineDiscipline:
    """Calls the discipline; one that raises an error is replaced, if there is a fallback.

    Args:
        fallback: name of the discipline that takes over when another one raises an error; empty: the run ends.
        park: sets again when a parked job becomes runnable, which is the discipline's choice; gets the time, too.
        on_fallback: called with the name of the discipline that failed, and the time.
    """

    def __init__(
        self,
        current: Discipline,
        table: JobTable,
        files: Sequence[Path],
        fallback: str,
        park: Callable[[Job, float], None],
        on_fallback: Callable[[str, float], None],
    ) -> None:
        self.current = current
        self._table = table
        self._files = tuple(files)
        self._fallback = fallback
        self._park = park
        self._on_fallback = on_fallback
        self._knowledge: dict[str, object] = {}
        """What disciplines have learned, by the kind of their predictors: a switch to and fro forgets nothing."""

    def create(self, name: str) -> Discipline:
        """A discipline for ``switch``.

        Raises:
            UnknownName: no such discipline. InvalidInput: its predictor file is none.
        """
        return create_discipline(name, self._files)

    def switch(self, name: str, now: float, fresh: Discipline | None) -> None:
        """Hand all live jobs to ``fresh``, by default a new discipline of that name.

        The discipline in charge begins anew if it is switched to: what it has learned is forgotten.

        Raises:
            UnknownName: no such discipline; the current one stays.
        """
        fresh = fresh or self.create(name)
        old_knowledge = self.current.knowledge()
        if name == self.current.info.name:
            self._knowledge.pop(self.current.predictor_kind, None)
        elif old_knowledge is not None and self.current.predictor_kind:
            self._knowledge[self.current.predictor_kind] = old_knowledge
        knowledge = self._knowledge.get(fresh.predictor_kind)
        if knowledge is not None and "=" not in name:
            fresh.recall(knowledge)
        self._take_over(fresh, now)

    def _take_over(self, fresh: Discipline, now: float) -> None:
        table = self._table
        jobs = sorted(table, key=lambda job: int(table.sequence[job.row]))
        for job in jobs:
            # The other discipline's number means nothing to this one.
            table.rank[job.row] = 0.0
            fresh.arrived(job, now)
        self.current = fresh
        for job in jobs:
            if job.parked and job.awaiting is None:
                self._park(job, now)
                fresh.due_changed(job, now)

    def _fall_back(self, error: Exception, now: float) -> None:
        """Hand all live jobs to the fallback.

        Raises:
            EngineFailed: there is none; the message has the error and the line of the discipline that led to it.
        """
        failed_name = self.current.info.name
        if not self._fallback or failed_name == self._fallback:
            if isinstance(error, TimelyError):
                raise error
            raise EngineFailed(
                f"discipline {failed_name!r} failed: {_engine_discipline_fault(error, self.current)}"
            ) from error
        log.critical(
            "discipline %s failed; %s serves from now on", failed_name, self._fallback, exc_info=error
        )
        self._take_over(self.create(self._fallback), now)
        self._on_fallback(failed_name, now)

    # ------------------------------------------------------------------ calls

    def check(self, spec: JobSpec, now: float) -> None:
        """Raises InvalidInput: the discipline cannot take the job."""
        try:
            self.current.check(spec)
        except InvalidInput:
            raise
        except Exception as error:
            self._fall_back(error, now)
            self.current.check(spec)

    def inform(self, hook: str, job: Job, now: float, *counts: int) -> None:
        try:
            getattr(self.current, hook)(job, *counts, now)
        except Exception as error:
            self._fall_back(error, now)

    def lead_s(self, job: Job, speed: Speed, now: float) -> float:
        """How long before the robot runs dry a parked generation becomes runnable, seconds."""
        try:
            return float(self.current.lead_s(job, speed))
        except Exception as error:
            self._fall_back(error, now)
            return self.current.lead_s(job, speed)

    def finish(self, jobs: Sequence[Job], now: float) -> None:
        """Call ``finished`` for jobs that are about to leave the table together."""
        try:
            for job in jobs:
                self.current.finished(job, now)
        except Exception as error:
            self._fall_back(error, now)
            # The other discipline has taken them over with the rest.
            for job in jobs:
                self.current.finished(job, now)

    def compose(self, limits: StepLimits) -> StepPlan:
        try:
            plan = self.current.compose(self._table, limits)
            _check_engine_plan(plan, self._table)
        except Exception as error:
            self._fall_back(error, limits.now)
            return self.current.compose(self._table, limits)
        return plan

    def maintain(self, limits: StepLimits) -> None:
        """What need not wait for the next step."""
        try:
            self.current.maintain(self._table, limits)
        except Exception as error:
            self._fall_back(error, limits.now)


def _check_engine_plan(plan: StepPlan, table: JobTable) -> None:
    """Raises TypeError: no plan. ValueError: it names a job that is not live."""
    if not isinstance(plan, StepPlan):
        raise TypeError(f"compose must return a StepPlan, got {type(plan).__name__}")
    if not table.has_all(plan.tokens.keys()) or not table.has_all(set(plan.evict)):
        raise ValueError("the plan names a job that is not live")


def _engine_discipline_fault(error: Exception, discipline: Discipline) -> str:
    """The error, with the last line of the discipline's module that led to it, or else the last of all."""
    frames = list(traceback.walk_tb(error.__traceback__))
    module = type(discipline).__module__
    own_frames = [entry for entry in frames if entry[0].f_globals.get("__name__") == module]
    frame, line = (own_frames or frames)[-1]
    return f"{type(error).__name__}: {error} ({frame.f_code.co_filename}:{line})"
