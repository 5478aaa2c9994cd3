"""Turns a request for a plan into a task and the generation that the engine is asked for."""

import hashlib
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from timely.core.errors import InvalidInput, TimelyError
from timely.core.hints import RequestHints
from timely.disciplines.predictors.request_annotator import PredictorArrival
from timely.engines.base import GenerationRequest
from timely.plans.prompt import Prompt, build_prompt, fixed_prompt_part
from timely.plans.robot_profiles import RobotProfile
from timely.plans.skill_set import SkillSet
from timely.principals import Principal, principal_token_digest
from timely.server.catalogue import ServerCatalogue, look_up_catalogue_entry
from timely.server.prediction.prediction_queue import PredictionQueue
from timely.server.settings import ServerSettings
from timely.server.tasks.engine_client import EngineClient
from timely.server.tasks.permissions import task_urgency_within_claims
from timely.server.tasks.replanning import sent_task_plan_history
from timely.server.tasks.request import MAX_TOKENS, TaskRequest
from timely.server.tasks.task import Task
from timely.server.tasks.task_events import TaskEvents

EXTRA_EVENTS = 8
"""Events of a task beside its segments."""


@dataclass(frozen=True, slots=True)
class TaskRobot:
    """What the names in a request stand for.

    Attributes:
        network_s: one-way delay to the robot, by the request or else by the profile, seconds.
    """

    skill_set: SkillSet
    profile: RobotProfile
    network_s: float


@dataclass(frozen=True, slots=True)
class TaskAdmission:
    """Looks up names, builds the prompt and fills in predictions."""

    engine: EngineClient
    catalogue: ServerCatalogue
    predictions: PredictionQueue
    settings: ServerSettings
    _texts: dict[tuple[str, str], tuple[SkillSet | RobotProfile, str]] = field(default_factory=dict)
    """What is written of skill sets and profiles: the same for all tasks, and most of what a task costs."""

    async def prepare(
        self, task_id: str, request: TaskRequest, robot: TaskRobot, principal: Principal, arrival_s: float
    ) -> tuple[Task, GenerationRequest]:
        """The task of a request, and its generation; a predicted urgency obeys the principal's claims, too.

        Raises:
            TooLarge: the prompt is too long.
        """
        prompt = self._prompt(request, robot.skill_set)
        await self.engine.check_length(prompt.system + prompt.user)
        annotation = await self.predictions.annotate(
            PredictorArrival(
                task_id, request.task, request.urgency, request.expected_tokens, hurry=request.tuf.urgent
            )
        )
        annotation = replace(
            annotation, urgency=task_urgency_within_claims(annotation.urgency, principal.claims)
        )
        token = request.report_token or secrets.token_urlsafe(24)
        task = self._task(
            request,
            robot,
            prompt,
            task_id=task_id,
            token=token,
            token_digest=principal_token_digest(token),
            annotation=annotation,
            arrival_s=arrival_s,
            network_s=robot.network_s,
            owner=principal.name,
            value_wait_s=principal.limits.value_wait_s or math.inf,
        )
        if principal.limits.kv_tokens is not None:
            prompt_tokens = await self.engine.count_tokens(prompt.system + prompt.user)
            task.kv_tokens = prompt_tokens + self._max_tokens(request, robot.skill_set)
        return task, self.generation(task)

    async def restore(self, request: TaskRequest, **fields: Any) -> Task:
        """A task of an earlier life of the server, as it was admitted.

        Where its skill set or robot cannot be read any more, ``replan`` says why, and no plan goes on.

        Args:
            fields: of ``Task``, beside those that follow from the request.
        """
        try:
            robot = await self.look_up_robot(request)
        except TimelyError:
            robot = _task_robot_by_name(request)
        return self._task(request, robot, self._prompt(request, robot.skill_set), **fields)

    def _prompt(self, request: TaskRequest, skill_set: SkillSet) -> Prompt:
        examples = (
            self.settings.prompt_examples and skill_set.name not in self.engine.engine.planner_skill_sets
        )
        fixed_part = self._once(
            f"prompt {examples}", skill_set, lambda: fixed_prompt_part(skill_set, examples=examples)
        )
        return build_prompt(
            skill_set, request.task, request.scene, history=request.history, fixed_part=fixed_part
        )

    def _task(self, request: TaskRequest, robot: TaskRobot, prompt: Prompt, **fields: Any) -> Task:
        return Task(
            request=request,
            skill_set=robot.skill_set,
            profile=robot.profile,
            prompt=prompt,
            events=TaskEvents(self._max_tokens(request, robot.skill_set) + EXTRA_EVENTS),
            fingerprint=self._fingerprint(robot.skill_set, robot.profile, prompt),
            **fields,
        )

    def _fingerprint(self, skill_set: SkillSet, profile: RobotProfile, prompt: Prompt) -> str:
        source = (
            self.engine.engine.identity,
            prompt.system,
            prompt.user,
            # Without defaults: a field that a release adds gives no plan another fingerprint.
            self._once("skill set", skill_set, partial(skill_set.model_dump_json, exclude_defaults=True)),
            self._once("profile", profile, partial(profile.model_dump_json, exclude_defaults=True)),
        )
        return hashlib.sha256("\0".join(source).encode()).hexdigest()

    def _once(self, kind: str, part: SkillSet | RobotProfile, write: Callable[[], str]) -> str:
        """The text that ``write`` makes of a part, made again only when the catalogue gives another part."""
        cached_part, text = self._texts.get((kind, part.name), (None, ""))
        if cached_part is not part:
            text = write()
            self._texts[kind, part.name] = part, text
        return text

    @staticmethod
    def _max_tokens(request: TaskRequest, skill_set: SkillSet) -> int:
        return min(request.max_tokens or skill_set.max_tokens, MAX_TOKENS)

    async def replan(self, task: Task, reason: str) -> None:
        """Give a task a new prompt, which says what was sent of its plan and why that plan is over.

        Raises:
            TooLarge: the prompt is too long. Others: as ``look_up_robot``.
        """
        await self.look_up_robot(task.request)
        self.set_history(task, sent_task_plan_history(task, reason))
        await self.engine.check_length(task.prompt.system + task.prompt.user)

    def set_history(self, task: Task, history: str) -> None:
        """Give a task the prompt with a history; the plan begins anew behind the segments so far."""
        task.request = task.request.model_copy(update={"history": history})
        task.prompt = self._prompt(task.request, task.skill_set)
        task.fingerprint = self._fingerprint(task.skill_set, task.profile, task.prompt)
        task.replaced_segments = len(task.track.segments)
        task.reset_parser()

    def generation(self, task: Task) -> GenerationRequest:
        request, annotation, prompt = task.request, task.annotation, task.prompt
        return GenerationRequest(
            task_id=task.task_id,
            prompt=prompt.user,
            system=prompt.system,
            task=request.task,
            skill_set=task.skill_set.name,
            skill_set_fingerprint=task.skill_set.fingerprint,
            robot=task.profile.name,
            hints=RequestHints(
                utility=request.tuf,
                urgency=annotation.urgency.level if annotation is not None else request.urgency,
                app=request.app,
                app_requests=request.app_requests,
                expected_tokens=annotation.expected_tokens if annotation is not None else None,
                priority=request.priority,
                network_s=task.network_s,
                agent=request.agent,
                promised=self.settings.promises_responses,
            ),
            max_tokens=self._max_tokens(request, task.skill_set),
            temperature=request.temperature,
            seed=request.seed,
            arrival_s=task.arrival_s,
        )

    async def look_up_robot(self, request: TaskRequest) -> TaskRobot:
        """The skill set and the robot of a request.

        Raises:
            InvalidInput: unknown names, or a robot without any of the skills.
        """
        skill_set = await look_up_catalogue_entry(self.catalogue.skill_set(request.skill_set), "skill_set")
        robot = request.robot or skill_set.profile
        if not robot:
            raise InvalidInput(f"skill set {skill_set.name} has no robot of its own: name one", where="robot")
        profile = await look_up_catalogue_entry(self.catalogue.profile(robot), "robot")
        if skill_set.skills and not any(profile.allows(skill.name) for skill in skill_set.skills):
            raise InvalidInput(f"{robot} can do nothing of the skill set {skill_set.name}", where="robot")
        network_s = request.network_s
        if network_s is None:
            own = "network_s" in profile.model_fields_set
            network_s = profile.network_s if own else skill_set.network_s
        return TaskRobot(skill_set, profile, network_s)


def _task_robot_by_name(request: TaskRequest) -> TaskRobot:
    """Names without descriptions, for a task of an earlier life of the server whose files are gone."""
    skill_set = SkillSet.model_construct(name=request.skill_set, language="text", max_tokens=MAX_TOKENS)
    profile = RobotProfile.model_construct(name=request.robot or "", robot="", source="", skills={})
    return TaskRobot(skill_set, profile, 0.0)
