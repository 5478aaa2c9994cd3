"""``timely predictor``: train predictor files from traces or labelled texts, and judge them."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lrtrace.option_kinds import PlainHelpTyper
from timely.cli.output import JsonFile, check_cli_output_file, write_cli_json
from timely.core.errors import InvalidInput
from timely.core.files import STDOUT
from timely.disciplines.predictors.classifier import TEXT_CLASSIFIER, TextClassifier
from timely.disciplines.predictors.embedding import Embedder
from timely.disciplines.predictors.embedding import prompt_embedder as embedder_named
from timely.disciplines.predictors.length_bucket import BUCKETS, LENGTH_BUCKETS, LengthBucketPredictor
from timely.disciplines.predictors.predictor_file import predictor_kind
from timely.disciplines.predictors.urgency import CAUTION, UrgencyPredictor
from timely.disciplines.requirements import LEVELS
from timely.predictor_training import labelled_texts
from timely.predictor_training.from_traces import predictor_history_from_traces, train_predictor_costs

app = PlainHelpTyper(help="Train predictor files from traces or labelled texts, and judge them.")

Traces = Annotated[list[Path], typer.Argument(metavar="TRACE", help="Traces, *.lrtrace.jsonl.")]
Target = Annotated[
    Path,
    typer.Option(
        "-o", "--output", metavar="FILE", callback=check_cli_output_file, help="Where to write it (.npz)."
    ),
]
Texts = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="CSV with a header or JSON lines: text and its label; or traces, *.lrtrace.jsonl.",
    ),
]
Space = Annotated[str, typer.Option("--embedder", help="hash (in every install), or wordllama.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the choice of texts held back.")]


@app.command("urgency")
def predictor_urgency_command(
    texts: Texts, output: Target, space: Space = "hash", seed: Seed = 0, json_file: JsonFile = None
) -> None:
    """Train urgency levels, 0 (most) to 4, from labelled texts. Serve with --predictor FILE.

    A fifth is held back to judge by; the file is then trained on all. Labels: urgency, level or label.
    """
    samples = labelled_texts.read_labelled_texts(texts, "urgency")
    embedder = _cli_embedder(space)
    begin_s = time.perf_counter()
    training, held_back = samples.split(seed)

    def train(examples: labelled_texts.LabelledTexts) -> TextClassifier:
        return TextClassifier.train(examples.texts, examples.labels, LEVELS, embedder=embedder)

    scores = labelled_texts.judge_urgency_predictor(UrgencyPredictor(train(training)), held_back)
    train(samples).save(output)
    _show_cli_scores("urgency", len(samples), time.perf_counter() - begin_s, scores, json_file)


@app.command("lengths")
def predictor_lengths_command(
    texts: Texts,
    output: Target,
    buckets: Annotated[int, typer.Option(min=2, help="How many, equally filled.")] = BUCKETS,
    space: Space = "hash",
    seed: Seed = 0,
    json_file: JsonFile = None,
) -> None:
    """Train output-length buckets from texts and lengths. Serve with --predictor FILE.

    A fifth is held back to judge by; the file is then trained on all. Labels: output_tokens, tokens or label.
    """
    samples = labelled_texts.read_labelled_texts(texts, "output_tokens")
    embedder = _cli_embedder(space)
    begin_s = time.perf_counter()
    training, held_back = samples.split(seed)

    def train(examples: labelled_texts.LabelledTexts) -> LengthBucketPredictor:
        return LengthBucketPredictor.train(
            examples.texts, examples.labels, buckets=buckets, embedder=embedder
        )

    scores = labelled_texts.judge_length_predictor(train(training), held_back)
    train(samples).save(output)
    _show_cli_scores("lengths", len(samples), time.perf_counter() - begin_s, scores, json_file)


@app.command("evaluate")
def predictor_evaluate_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A predictor of urgency or lengths (.npz).")],
    texts: Texts,
    caution: Annotated[
        float, typer.Option(min=0.01, max=1, help="Probability from which the more urgent level is taken.")
    ] = CAUTION,
    json_file: JsonFile = None,
) -> None:
    """Judge a predictor file by labelled texts.

    It must not be trained on them.
    """
    kind = predictor_kind(file)
    begin_s = time.perf_counter()
    if kind == TEXT_CLASSIFIER:
        predictor = UrgencyPredictor(TextClassifier.load(file), caution=caution)
        scores = labelled_texts.judge_urgency_predictor(
            predictor, labelled_texts.read_labelled_texts(texts, "urgency")
        )
    elif kind == LENGTH_BUCKETS:
        lengths_of = LengthBucketPredictor.load(file)
        scores = labelled_texts.judge_length_predictor(
            lengths_of, labelled_texts.read_labelled_texts(texts, "output_tokens")
        )
    else:
        raise InvalidInput(f"a {kind} file predicts neither urgency nor lengths from texts", where=str(file))
    _show_cli_scores(kind, int(scores["texts"]), time.perf_counter() - begin_s, scores, json_file)


def _cli_embedder(space: str) -> Embedder | None:
    """None stands for the classifier's own: hashed words in more buckets than a history needs."""
    return None if space == "hash" else embedder_named(space)


def _show_cli_scores(
    what: str, texts: int, seconds: float, scores: dict[str, float], json_file: Path | None
) -> None:
    write_cli_json(json_file, {"predictor": what, "texts": texts, "seconds": seconds, "judged": scores})
    columns = {
        "right": "right", "within_one": "at most one off", "too_low": "rated too low",
        "error_tokens": "mean error, tokens", "error_of_one_guess_tokens": "one guess for all, tokens",
    }  # fmt: skip
    console = Console(stderr=json_file == STDOUT)
    table = Table("judged by", *(words for name, words in columns.items() if name in scores))
    table.add_row(
        f"{scores['texts']:.0f} texts",
        *(f"{scores[n]:.1f}" if n.endswith("tokens") else f"{scores[n]:.0%}" for n in columns if n in scores),
    )
    console.print(table)
    console.print(f"{texts} texts in {seconds:.1f} s")


@app.command("costs")
def predictor_costs_command(
    traces: Traces,
    output: Target,
    cost: Annotated[str, typer.Option(help="kv (justitia, srjf), or weighted (justitia-c: p + 2 d).")] = "kv",
    seed: Annotated[int, typer.Option(min=0, help="Of the networks' weights.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Train the cost of applications, with a model for each type. Serve with --discipline justitia=FILE.

    The type of a job's app is its part before the first /. A type needs 8 instances; 100 are plenty.
    """
    report, too_few = train_predictor_costs(traces, output, unit=cost, seed=seed)
    write_cli_json(json_file, {"cost": cost, "types": [asdict(row) for row in report], "too_few": too_few})
    console = Console(stderr=json_file == STDOUT)
    table = Table("type", "applications", "error, held back", "trained in")
    for row in report:
        error = "" if row.error is None else f"{row.error:.0%}"
        table.add_row(row.kind, str(row.applications), error, f"{row.train_s:.2f} s")
    console.print(table)
    if too_few:
        console.print(f"too few instances, learned while serving: {', '.join(too_few)}")


@app.command("history")
def predictor_history_command(
    traces: Traces,
    output: Target,
    embedder: Annotated[str, typer.Option(help="hash (in every install), or wordllama.")] = "hash",
    json_file: JsonFile = None,
) -> None:
    """Keep prompts with the lengths of their answers. Serve with --discipline sagesched=FILE.

    The latest 10,000 requests are kept. ssjf, ltr, trail and vllm-sjf take the file too.
    """
    begin_s = time.perf_counter()
    requests = predictor_history_from_traces(traces, output, space=embedder)
    duration_s = time.perf_counter() - begin_s
    write_cli_json(json_file, {"requests": requests, "embedder": embedder, "seconds": duration_s})
    Console(stderr=json_file == STDOUT).print(f"{requests} requests remembered in {duration_s:.1f} s")
