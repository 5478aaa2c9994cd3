"""Turns a request for a plan into a task and the generation that the engine is asked for."""

from __future__ import annotations

import secrets

from timely.core.clock import AsyncClock
from timely.core.errors import InvalidInput
from timely.core.hints import RequestHints
from timely.disciplines.predictors.request_annotator import Arrival
from timely.engines.base import GenerationRequest
from timely.plans.prompt import build_prompt
from timely.plans.robot_profiles import RobotProfile
from timely.plans.skill_set import SkillSet
from timely.server.catalogue import Catalogue, look_up_catalogue_entry
from timely.server.prediction.prediction_queue import PredictionQueue
from timely.server.settings import ServerSettings
from timely.server.tasks.engine_client import EngineClient
from timely.server.tasks.request import MAX_TOKENS, TaskRequest
from timely.server.tasks.task import Task
from timely.server.tasks.task_events import TaskEvents

EXTRA_EVENTS = 8
"""Events of a task beside its segments."""


class Admission:
    """Looks up names, builds the prompt and fills in predictions.

    Args:
        engine: says how long a prompt may be.
        catalogue: skill sets and robot profiles by name.
        predictions: urgency and length for requests without them.
        settings: limits.
        clock: gives the arrival.
    """

    def __init__(
        self,
        engine: EngineClient,
        catalogue: Catalogue,
        predictions: PredictionQueue,
        settings: ServerSettings,
        clock: AsyncClock,
    ) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._predictions = predictions
        self._settings = settings
        self._clock = clock

    async def prepare(self, task_id: str, request: TaskRequest) -> tuple[Task, GenerationRequest]:
        """The task of a request, and its generation.

        Raises:
            InvalidInput: unknown names, or a robot without any of the skills. TooLarge: the prompt is too long.
        """
        skill_set, profile = await self._robot(request)
        prompt = build_prompt(
            skill_set,
            request.task,
            request.scene,
            examples=self._settings.prompt_examples and skill_set.name not in self._engine.planner_skill_sets,
            history=request.history,
        )
        await self._engine.check_length(prompt.system + prompt.user)
        network_s = request.network_s
        if network_s is None:
            network_s = profile.network_s or skill_set.network_s
        arrival_s = self._clock.now()
        annotation = await self._predictions.annotate(
            Arrival(task_id, request.task, request.urgency, request.expected_tokens, hurry=request.tuf.urgent)
        )
        max_tokens = min(request.max_tokens or skill_set.max_tokens, MAX_TOKENS)
        task = Task(
            task_id=task_id,
            token=request.report_token or secrets.token_urlsafe(24),
            request=request,
            skill_set=skill_set,
            profile=profile,
            arrival_s=arrival_s,
            annotation=annotation,
            network_s=network_s,
            events=TaskEvents(max_tokens + EXTRA_EVENTS),
        )
        generation = GenerationRequest(
            task_id=task_id,
            prompt=prompt.user,
            system=prompt.system,
            task=request.task,
            skill_set=skill_set.name,
            robot=profile.name,
            hints=RequestHints(
                utility=request.tuf,
                urgency=annotation.urgency.level,
                app=request.app,
                app_requests=request.app_requests,
                expected_tokens=annotation.expected_tokens,
                priority=request.priority,
                network_s=network_s,
                agent=request.agent,
            ),
            max_tokens=max_tokens,
            temperature=request.temperature,
            seed=request.seed,
        )
        return task, generation

    async def _robot(self, request: TaskRequest) -> tuple[SkillSet, RobotProfile]:
        skill_set = await look_up_catalogue_entry(self._catalogue.skill_set(request.skill_set), "skill_set")
        robot = request.robot or skill_set.profile
        if not robot:
            raise InvalidInput(f"skill set {skill_set.name} has no robot of its own: name one", where="robot")
        profile = await look_up_catalogue_entry(self._catalogue.profile(robot), "robot")
        if skill_set.skills and not any(profile.allows(skill.name) for skill in skill_set.skills):
            raise InvalidInput(f"{robot} can do nothing of the skill set {skill_set.name}", where="robot")
        return skill_set, profile
