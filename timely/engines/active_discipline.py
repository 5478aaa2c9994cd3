"""The discipline in charge of all live jobs: its hooks, switches to another one, and what replaces one that fails."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from timely.core.job import Job, JobTable
from timely.disciplines.base import Discipline, Speed, StepLimits, StepPlan
from timely.disciplines.registry import create_discipline

FALLBACK = "fcfs"
"""Serves when another discipline has failed, in engines with robots."""

log = logging.getLogger(__name__)


class ActiveEngineDiscipline:
    """Calls the discipline; one that raises an error is replaced, if there is a fallback.

    Args:
        fallback: name of the discipline that takes over when another one raises an error; empty: the error is raised.
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
        """Hand all live jobs to the fallback; without one, raise the error."""
        failed_name = self.current.info.name
        if not self._fallback or failed_name == self._fallback:
            raise error
        log.critical(
            "discipline %s failed; %s serves from now on", failed_name, self._fallback, exc_info=error
        )
        self._take_over(self.create(self._fallback), now)
        self._on_fallback(failed_name, now)

    # ------------------------------------------------------------------ calls

    def inform(self, hook: str, job: Job, now: float, *counts: int) -> None:
        try:
            getattr(self.current, hook)(job, *counts, now)
        except Exception as error:
            self._fall_back(error, now)

    def lead_s(self, job: Job, speed: Speed, now: float) -> float:
        """How long before the robot runs dry a parked generation becomes runnable, seconds."""
        try:
            return self.current.lead_s(job, speed)
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
            return self.current.compose(self._table, limits)
        except Exception as error:
            self._fall_back(error, limits.now)
            return self.current.compose(self._table, limits)

    def maintain(self, limits: StepLimits) -> None:
        """What need not wait for the next step."""
        try:
            self.current.maintain(self._table, limits)
        except Exception as error:
            self._fall_back(error, limits.now)
