"""``timely planner``: train the small model for skill sets, judge its plans, describe an adapter."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lrtrace.option_kinds import PlainHelpTyper
from timely.cli.output import JsonFile, cli_say, write_cli_json
from timely.cli.terminal import Verbose, quiet_cli_terminal
from timely.core.errors import InvalidInput, Unsupported, check_name
from timely.core.progress import Say
from timely.planner.cases.case import PlannerCase
from timely.planner.cases.from_examples import cases_of
from timely.planner.cases.generate import GENERATORS, generate_cases
from timely.planner.cases.vocabulary import Split, coinable_case_words
from timely.planner.model_card import (
    SHIPPED_ADAPTER,
    PlannerCard,
    check_planner_base,
    planner_prompt_hash,
    read_planner_card,
    write_planner_card,
)
from timely.planner.model_card import WEIGHTS as WEIGHTS_FILE
from timely.planner.training.checks import LOOKED_AT, check_training_examples, training_plan_names
from timely.planner.training.weight_hashes import training_file_hash, training_weights_hash
from timely.plans.skill_library import load_skill_set
from timely.plans.skill_set import SkillSet

if TYPE_CHECKING:
    from timely.planner.evaluate import Score
    from timely.planner.training.train import TrainingStep, TrainOptions

app = PlainHelpTyper(help="Train the small model for skill sets, judge its plans, describe an adapter.")

WAYS: dict[str, tuple[bool, bool, bool, bool]] = {
    "base": (False, True, False, False),
    "base+grammar": (False, True, True, False),
    "adapter": (True, False, False, False),
    "adapter+grammar": (True, False, True, False),
    "adapter+grammar+names": (True, False, True, True),
}
"""Ways of prompting: with the adapter, examples in the prompt, the grammar, and names of the prompt only."""

EXAMPLES_A_STEP = {"drone": 14, "arm": 7}
FINISHING_EXAMPLES_A_STEP = {"drone": 9, "arm": 14}
"""The drone has more kinds of tasks and needs more examples; the arm gets its share at the end."""
OWN_EXAMPLES_A_STEP = 16
FIRST = "first"
"""Folder of the first part of a training, inside the adapter's."""
FINISHING_PART, FINISHING_RATE = 5, 0.7
"""Steps of the first part for each step of finishing; learning rate of finishing over that of the first part."""
MAX_SEED = 2**63 - 1
"""Largest seed that torch takes."""
COIN = 0.3
"""Share of coined names while finishing, which teaches the model to copy names from the prompt."""

SkillSets = Annotated[
    list[str] | None, typer.Option("--skill-set", help="Name or YAML file; may be given several times.")
]
Base = Annotated[
    str | None, typer.Option(metavar="DIR", help="Model folder; the packaged SmolLM2-135M unless given.")
]
Threads = Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves it to torch.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


@app.command("train")
def planner_train_command(
    skill_set: SkillSets = None,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of the adapter; an interrupted training there goes on."),
    ] = Path("planner"),
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 520,
    start: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Adapter to begin with, instead of none.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-3,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Of the examples and the first weights.")
    ] = 0,
    base: Base = None,
    threads: Threads = 2,
    device: Device = "cpu",
    json_file: JsonFile = None,
) -> None:
    """Train an adapter: a planner for one or more skill sets.

    The skill sets are drone and arm unless given.
    Example: timely planner train --skill-set my_robot.yaml --out my_planner --steps 80
    """
    sets = _find_cli_skill_sets(skill_set)
    for skills in sets:
        # Refuses a skill set without examples before the training.
        next(_command_cases(skills, "train", seed))
    if start is not None:
        read_planner_card(start)
    _require_cli_planner_libraries()
    folder = _find_cli_planner_base(base)
    if start is not None:
        check_planner_base(read_planner_card(start), folder, start)
    for skills in sets:
        check_training_examples(skills)
    names = {
        skills.name: training_plan_names(skills, islice(_command_cases(skills, "train", seed), LOOKED_AT))
        for skills in sets
    }
    from timely.planner.training.train import TrainOptions

    examples = _cli_training_table_row(EXAMPLES_A_STEP, sets)
    options = TrainOptions(
        steps=steps, examples=examples, rate=rate, seed=seed, threads=threads, device=device
    )
    begin_s = time.monotonic()
    say = cli_say(json_file)
    training = _train_cli_planner(folder, sets, out, options, start, say)
    card = PlannerCard(
        base_model=folder.name,
        base_sha256=training_weights_hash(folder),
        adapter_sha256=training_file_hash(out / WEIGHTS_FILE),
        skill_sets={skills.name: planner_prompt_hash(skills) for skills in sets},
        seed=training.last.seed,
        steps=steps + training.finishing_steps,
        examples_seen=training.examples_seen,
        loss=round(training.loss, 5),
        names=names,
        options={
            **dataclasses.asdict(training.last),
            "steps": steps,
            "rate": rate,
            "finishing_steps": training.finishing_steps,
            "examples": options.examples,
            "finishing_examples": training.last.examples if training.finishing_steps else (),
            "start": None if start is None else start.name,
        },
    )
    write_planner_card(out, card)
    size = (out / WEIGHTS_FILE).stat().st_size
    minutes = (time.monotonic() - begin_s) / 60
    say(f"{out}: {size / 1e6:.1f} MB, loss {training.loss:.4f}, {minutes:.1f} min")
    write_cli_json(json_file, {**card.model_dump(), "bytes": size})


@dataclasses.dataclass(frozen=True, slots=True)
class _Training:
    """A training that has ended.

    Attributes:
        last: options of its last part.
        finishing_steps: steps with coined names after the first part; 0 without such a part.
    """

    last: TrainOptions
    finishing_steps: int
    examples_seen: int
    loss: float


def _train_cli_planner(
    folder: Path, sets: Sequence[SkillSet], out: Path, options: TrainOptions, start: Path | None, say: Say
) -> _Training:
    """Train on every kind of task, then with coined names; only the latter from ``start`` or without a generator."""
    from timely.planner.training.train import TrainingSource
    from timely.planner.training.train import train_planner as run

    finishing_steps = examples_seen = 0
    if start is None and any(skills.name in GENERATORS for skills in sets):
        finishing_steps = max(1, options.steps // FINISHING_PART)
        plain = [TrainingSource(skills, _command_cases(skills, "train", options.seed)) for skills in sets]
        say(f"{options.steps} steps on every kind of task, then {finishing_steps} more with coined names")
        start = out / FIRST
        run(folder, plain, start, options, progress=partial(_print_cli_training_step, say))
        examples_seen = options.steps * sum(options.examples)
        options = dataclasses.replace(
            options,
            steps=finishing_steps,
            rate=options.rate * FINISHING_RATE,
            examples=_cli_training_table_row(FINISHING_EXAMPLES_A_STEP, sets),
        )
    # Other cases than in the first part.
    seed = options.seed + bool(finishing_steps)
    words = coinable_case_words(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    sources = [
        TrainingSource(skills, _command_cases(skills, "train", seed, coin_share=COIN, coinable=words))
        for skills in sets
    ]
    loss = run(folder, sources, out, options, start=start, progress=partial(_print_cli_training_step, say))
    return _Training(options, finishing_steps, examples_seen + options.steps * sum(options.examples), loss)


def _print_cli_training_step(say: Say, step: TrainingStep) -> None:
    left = (step.steps - step.step) * step.step_s
    say(
        f"step {step.step}/{step.steps}  loss {step.loss:.4f}  {step.step_s:.1f} s a step, {left / 60:.0f} min left"
    )


@app.command("eval")
def planner_eval_command(
    adapter: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the adapter; the shipped one unless given.")
    ] = SHIPPED_ADAPTER,
    skill_set: SkillSets = None,
    ways: Annotated[str, typer.Option(help=f"Which to compare, of: {', '.join(WAYS)}.")] = ",".join(WAYS),
    number: Annotated[int, typer.Option("--cases", min=1, help="Held-out tasks a skill set.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the tasks.")] = 1,
    failures: Annotated[int, typer.Option(min=0, help="How many failures to show a skill set and way.")] = 0,
    record: Annotated[bool, typer.Option(help="Write the scores into the adapter's card.")] = False,
    base: Base = None,
    threads: Threads = 1,
    device: Device = "cpu",
    json_file: JsonFile = None,
) -> None:
    """Judge plans by executing them on held-out tasks.

    The tasks have other wordings and other objects.
    Example: timely planner eval --adapter my_planner --skill-set my_robot.yaml --cases 100
    """
    names = ways.split(",")
    for way in names:
        check_name("way", way, WAYS, where="--ways")
    sets = _find_cli_skill_sets(skill_set)
    tasks = {skills.name: list(islice(_command_cases(skills, "test", seed), number)) for skills in sets}
    card = read_planner_card(adapter)
    _require_cli_planner_libraries()
    folder = _find_cli_planner_base(base)
    check_planner_base(card, folder, adapter)
    from timely.planner.batch_decode import PlannerAnswerer
    from timely.planner.evaluate import judge_planner_plans

    results: list[Score] = []
    for with_adapter in (False, True):
        own_ways = [way for way in names if WAYS[way][0] == with_adapter]
        if not own_ways:
            continue
        answerer = PlannerAnswerer(
            folder, adapter if with_adapter else None, names=card.names, threads=threads, device=device
        )
        for skills in sets:
            for way in own_ways:
                _, examples, with_grammar, with_names = WAYS[way]
                cases = tasks[skills.name]
                plans = answerer.plans(
                    skills, cases, examples=examples, constrained=with_grammar, named=with_names
                )
                result = judge_planner_plans(
                    way, answerer, skills, cases, plans, examples=examples, keep=max(20, failures)
                )
                results.append(result)
                _show_cli_score(result, failures, cli_say(json_file))
    if record:
        scores = {f"{result.skill_set} {result.name}": _brief_cli_score(result) for result in results}
        write_planner_card(adapter, card.model_copy(update={"scores": {**card.scores, **scores}}))
    write_cli_json(json_file, {"adapter": str(adapter), "seed": seed, "scores": results})


@app.command("info")
def planner_info_command(
    adapter: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the adapter; the shipped one unless given.")
    ] = SHIPPED_ADAPTER,
    json_file: JsonFile = None,
) -> None:
    """Describe an adapter: its skill sets, its training and its scores."""
    card = read_planner_card(adapter)
    size = (adapter / WEIGHTS_FILE).stat().st_size
    say = cli_say(json_file)
    stale = []
    for name, digest in card.skill_sets.items():
        try:
            if planner_prompt_hash(load_skill_set(name)) != digest:
                stale.append(name)
        except InvalidInput:
            stale.append(name)
    say(f"{adapter}")
    say(f"  base model  {card.base_model}")
    say(f"  skill sets  {', '.join(card.skill_sets)}")
    say(f"  weights     {size / 1e6:.1f} MB, SHA-256 {card.adapter_sha256[:16]}")
    say(
        f"  training    {card.steps} steps, {card.examples_seen} examples, seed {card.seed}, loss {card.loss:g}"
    )
    for name in stale:
        say(f"  note        the prompt of {name} is not the one it was trained with (or is not found here)")
    for name, scores in card.scores.items():
        say(f"  {name}: " + ", ".join(f"{key} {value}" for key, value in scores.items()))
    write_cli_json(json_file, {**card.model_dump(), "bytes": size, "stale": stale})


@app.command("latency")
def planner_latency_command(
    planner: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder; the shipped one unless given.")
    ] = None,
    number: Annotated[int, typer.Option("--cases", min=1, help="Tasks a skill set.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Of the tasks.")] = 1,
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> None:
    """Measure the time to the first segment.

    With the planner, and with examples in the prompt.
    Two engines take turns on this machine, one task at a time. Cold means that the fixed prompt is in no cache.
    """
    from timely.bench.planner_latency import bench_planner_latency, compare_planner_bench

    with quiet_cli_terminal("planner-latency", verbose=verbose):
        results = asyncio.run(bench_planner_latency(planner, number, seed, ()))
    say = cli_say(json_file)
    say(f"{'':38}first segment, ms: median (middle half)   its tokens")
    for one in results:
        low, high = one.quartiles_ms
        name = f"{one.skill_set:6}{one.way:22}{'cold' if one.cold else 'cached'}"
        none = f"   {one.without_segment} of {number} tasks without any" if one.without_segment else ""
        say(f"{name:38}{one.median_ms:8.0f} ({low:.0f} to {high:.0f}){one.mean_tokens:18.1f}{none}")
    pairs = compare_planner_bench(results)
    say("the planner without examples over the planner with them, where both wrote the same first segment:")
    for pair in pairs:
        name = f"{pair.skill_set:6}{'cold' if pair.cold else 'cached'}"
        ratio = (
            f"{pair.ratio:8.2f} of the time ({pair.tasks} tasks)"
            if pair.ratio is not None
            else "no such task"
        )
        say(f"{name:38}{ratio}")
    write_cli_json(json_file, {"ways": results, "same_first_segment": pairs})


def _command_cases(
    skills: SkillSet, split: Split, seed: int, *, coin_share: float = 0.0, coinable: tuple[str, ...] = ()
) -> Iterator[PlannerCase]:
    if skills.name in GENERATORS:
        return generate_cases(skills.name, split, seed, coin_share=coin_share, coinable=coinable)
    return cases_of(skills, split, seed)


def _cli_training_table_row(table: dict[str, int], sets: Sequence[SkillSet]) -> tuple[int, ...]:
    return tuple(table.get(skills.name, OWN_EXAMPLES_A_STEP) for skills in sets)


def _find_cli_skill_sets(names: Sequence[str] | None) -> list[SkillSet]:
    return [load_skill_set(name) for name in names or list(GENERATORS)]


def _find_cli_planner_base(model: str | None) -> Path:
    from timely.engines.vllm.model import NO_PLANNER, resolve_vllm_model

    folder = resolve_vllm_model(model, planner=NO_PLANNER, progress=lambda line: typer.echo(line, err=True))
    if not isinstance(folder, Path) or not folder.is_dir():
        raise InvalidInput(f"{folder} is no model folder", where="--base")
    return folder


def _require_cli_planner_libraries() -> None:
    from importlib.util import find_spec

    absent = [
        name for name in ("torch", "transformers", "safetensors", "xgrammar") if find_spec(name) is None
    ]
    if absent:
        raise Unsupported(
            f"{', '.join(absent)} not installed; install timely-serving[train]", where="planner"
        )


def _brief_cli_score(score: Score) -> dict[str, Any]:
    return {
        "cases": score.cases,
        "success": round(score.success, 4),
        "refused": None if score.refused is None else round(score.refused, 4),
        "wrongly_refused": round(score.wrongly_refused, 4),
        "valid": round(score.valid, 4),
        "plan_tokens": round(score.plan_tokens, 1),
        "first_segment_tokens": round(score.first_segment_tokens, 1),
        "prompt_tokens": round(score.prompt_tokens, 1),
    }


def _show_cli_score(score: Score, failures: int, say: Say) -> None:
    brief = _brief_cli_score(score)
    say(f"{score.skill_set:8} {score.name:21} " + "  ".join(f"{key} {value}" for key, value in brief.items()))
    for wrong in score.failures[:failures]:
        history = f" [{wrong['history']}]" if wrong["history"] else ""
        say(f"    {wrong['family']}: {wrong['task']} ({wrong['scene']}){history}")
        say(f"      {wrong['plan']}\n      wanted {wrong['wanted']}; {wrong['wrong']}")
