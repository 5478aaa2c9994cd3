"""Trains a LoRA adapter on generated cases: seeded, resumable, on two cores or a GPU."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput
from timely.core.files import replaced_file
from timely.planner.cases.case import PlannerCase
from timely.planner.training import lora
from timely.planner.training.checks import check_device_name, check_planner_device
from timely.planner.training.compute_type import compute_type
from timely.planner.training.packing import (
    TrainingTokens,
    pack_training_examples,
    packed_training_inputs,
    register_training_attention,
    training_tokens,
)
from timely.planner.training.weight_hashes import training_file_hash, training_weights_hash
from timely.plans.skill_set import SkillSet

STATE = "state.pt"
CHECKPOINT_STEPS = 25

MAX_THREADS = 1024

Progress = Callable[["TrainingStep"], None]


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How to train.

    Attributes:
        steps: optimiser steps. examples: per skill set and step, in the order of the skill sets.
        rate: peak learning rate, after ``warmup`` steps, falling to a tenth along a cosine.
        rank, alpha: of the adapter. threads: of the CPU; 0 leaves it to torch. Steps are small: where other work
            shares the cores, one thread is several times faster than two that wait for each other.
    """

    steps: int = 160
    examples: tuple[int, ...] = (13, 9)
    rate: float = 1e-3
    warmup: int = 10
    rank: int = 16
    alpha: int = 32
    seed: int = 0
    threads: int = 1
    device: str = "cpu"

    def check(self, skill_sets: int) -> None:
        """Raise InvalidInput for impossible options."""
        if self.steps < 1 or self.rank < 1 or not 0.0 < self.rate < math.inf:
            raise InvalidInput("steps, rank and rate must be positive", where="train")
        check_device_name(self.device)
        if not 0 <= self.threads <= MAX_THREADS:
            raise InvalidInput(f"must be 0 to {MAX_THREADS}", where="threads")
        if len(self.examples) != skill_sets or min(self.examples, default=0) < 1:
            raise InvalidInput(
                f"needs one positive number of examples for each of {skill_sets}", where="examples"
            )


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """Progress after a step. ``loss``: nats a plan token."""

    step: int
    steps: int
    loss: float
    step_s: float


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """Where one skill set's examples come from: endless, seeded."""

    skills: SkillSet
    cases: Iterator[PlannerCase]


def train_planner(
    base: Path,
    sources: Sequence[TrainingSource],
    out: Path,
    options: TrainOptions,
    *,
    start: Path | None = None,
    progress: Progress | None = None,
) -> float:
    """Train an adapter for ``base`` into the folder ``out``; a training that was broken off there goes on.

    Args:
        start: an adapter to begin with.

    Returns:
        The mean loss of the last ten steps, nats a plan token.

    Raises:
        InvalidInput: impossible options, or ``out`` holds a training with other ones.
    """
    options.check(len(sources))
    check_planner_device(options.device)
    import torch
    from transformers import AutoTokenizer

    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = _load_training_model(base, options.device)
    parameters = lora.attach_training_adapter(model, options.rank, options.alpha, options.seed)
    if start is not None:
        lora.load_training_adapter(start, parameters)
    optimiser = _TrainingOptimiser(parameters, options.rate)
    out.mkdir(parents=True, exist_ok=True)
    signature = _training_signature(options, sources, base, start)
    first, losses = _resume_training(out, signature, optimiser)
    for source, count in zip(sources, options.examples, strict=True):
        for _ in range(first * count):
            next(source.cases)
    for step in range(first, options.steps):
        began = time.perf_counter()
        batches = [
            [_training_case_tokens(tokenizer, source.skills, next(source.cases)) for _ in range(count)]
            for source, count in zip(sources, options.examples, strict=True)
        ]
        losses.append(_run_training_step(model, batches, options.device))
        optimiser.step(_training_schedule(step, options))
        if (step + 1) % CHECKPOINT_STEPS == 0 or step + 1 == options.steps:
            lora.save_trained_adapter(out, parameters, options.rank, options.alpha)
            _save_training(out, signature, step + 1, losses, optimiser)
        if progress:
            progress(TrainingStep(step + 1, options.steps, losses[-1], time.perf_counter() - began))
    recent = losses[-10:]
    return sum(recent) / len(recent)


def _training_case_tokens(tokenizer: Any, skills: SkillSet, case: PlannerCase) -> TrainingTokens:
    prompt = case.prompt(skills)
    return training_tokens(tokenizer, prompt.system, prompt.user, case.plan)


def _load_training_model(base: Path, device: str) -> Any:
    from transformers import AutoModelForCausalLM

    name = register_training_attention()
    model = AutoModelForCausalLM.from_pretrained(base, dtype=compute_type(device), attn_implementation=name)
    lora.quicken_training_norms(model)
    return model.to(device)


def _run_training_step(model: Any, batches: Sequence[Sequence[TrainingTokens]], device: str) -> float:
    """Gradients of one step; the mean loss over all plan tokens."""
    import torch

    packs = [pack_training_examples(batch) for batch in batches]
    total = sum(len(pack.targets) for pack in packs)
    loss_sum = 0.0
    for pack in packs:
        hidden_states = model.model(
            **packed_training_inputs(pack, device), use_cache=False
        ).last_hidden_state[0]
        # Only where a plan's token comes next: the vocabulary is a fifth of the model.
        logits = model.lm_head(hidden_states[torch.tensor(pack.predicts, device=device)])
        targets = torch.tensor(pack.targets, device=device)
        loss = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum") / total
        loss.backward()
        loss_sum += float(loss.detach())
    return loss_sum


class _TrainingOptimiser:
    """AdamW on float32 copies of the trained tensors; B learns faster than A (LoRA+, arXiv 2402.12354)."""

    B_FASTER = 2.0

    def __init__(self, parameters: Mapping[str, Any], rate: float) -> None:
        import torch

        self.parameters = list(parameters.values())
        self.rate = rate
        self.masters = [parameter.detach().float().clone() for parameter in self.parameters]
        halves: dict[float, list[Any]] = {1.0: [], self.B_FASTER: []}
        for name, master in zip(parameters, self.masters, strict=True):
            halves[self.B_FASTER if ".lora_B." in name else 1.0].append(master)
        groups = [{"params": tensors, "faster": faster} for faster, tensors in halves.items()]
        self.adam = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), weight_decay=0.0, foreach=True)

    def step(self, part: float) -> None:
        """Take the gradients, at this part of the peak rate."""
        import torch

        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad = parameter.grad.float()
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.rate * part * group["faster"]
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        self.copy()

    def copy(self) -> None:
        """The model computes with the float32 copies, rounded."""
        import torch

        with torch.no_grad():
            for master, parameter in zip(self.masters, self.parameters, strict=True):
                parameter.copy_(master)


def _training_schedule(step: int, options: TrainOptions) -> float:
    if step < options.warmup:
        return (step + 1) / options.warmup
    part = (step - options.warmup) / max(1, options.steps - options.warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * part))


def _training_signature(
    options: TrainOptions, sources: Sequence[TrainingSource], base: Path, start: Path | None
) -> dict[str, Any]:
    """The values that must be equal to continue a training."""
    values = asdict(options)
    del values["threads"]
    return {
        **values,
        "dtype": compute_type(options.device),
        "skill_sets": [source.skills.model_dump(mode="json") for source in sources],
        "base": training_weights_hash(base),
        "start": "" if start is None else training_file_hash(start / lora.WEIGHTS),
    }


def _resume_training(
    out: Path, signature: Mapping[str, Any], optimiser: _TrainingOptimiser
) -> tuple[int, list[float]]:
    import torch

    path = out / STATE
    if not path.is_file():
        return 0, []
    state = torch.load(path, weights_only=True)
    if state["signature"] != json.dumps(signature, sort_keys=True):
        raise InvalidInput(
            "holds a training with other options, skill sets or weights; name another folder or remove it",
            where=str(out),
        )
    for master, weight in zip(optimiser.masters, state["weights"], strict=True):
        master.copy_(weight)
    optimiser.copy()
    optimiser.adam.load_state_dict(state["adam"])
    return int(state["step"]), list(state["losses"])


def _save_training(
    out: Path, signature: Mapping[str, Any], step: int, losses: list[float], optimiser: _TrainingOptimiser
) -> None:
    """The state to go on from; never half a file."""
    import torch

    state = {
        "signature": json.dumps(signature, sort_keys=True),
        "step": step,
        "losses": losses,
        "weights": optimiser.masters,
        "adam": optimiser.adam.state_dict(),
    }
    with replaced_file(out / STATE) as temporary:
        torch.save(state, temporary)
