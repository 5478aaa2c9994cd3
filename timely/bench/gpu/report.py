"""The page of the benchmark on a GPU: what was measured, beside what was predicted, with two pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timely.bench.gpu.live_points import GPU_SYSTEMS, gpu_bench_point_name
from timely.bench.papers import plots
from timely.bench.papers.seed_statistics import Measured
from timely.bench.plain import MEASURES
from timely.core.files import core_write_file

PLAIN_UNITS = {"output_throughput": "tokens/s", "steps": "steps", "front_end_s": "s"}
"""Of the benchmark of ordinary requests, where a field is no time in milliseconds."""
FIRST_ACTION_REACH = 3.0
"""Mean response of whole answers over ours that is aimed at, at the published load."""

TIME_VALUES = ("response p50", "response p90", "waiting mean")
"""Measures that stand beside their prediction."""

IN_TIME = "in time, urgent"

Value = Mapping[str, Any]


def gpu_bench_first_action_ratio(points: Value, load: float) -> float | None:
    """Mean response of ``vllm``, which gives whole answers, over that of ``timely`` at a load; None without both."""
    systems = points.get(gpu_bench_point_name(load), {})
    if not {"timely", "vllm"} <= systems.keys():
        return None
    return float(systems["vllm"]["response mean"] / systems["timely"]["response mean"])


def gpu_bench_prediction_error(measurements: Value, predictions: Value) -> float | None:
    """Mean relative error of the compared measures over all points; None without any."""
    errors = [
        abs(predictions[workload][system][name] / values[name] - 1.0)
        for workload, systems in measurements.items()
        for system, values in systems.items()
        for name in TIME_VALUES
        if values.get(name) and name in predictions.get(workload, {}).get(system, {})
    ]
    return sum(errors) / len(errors) if errors else None


def write_gpu_page(
    page: Path, machine: Value, settings: Value, results: Mapping[str, Value], command: str
) -> None:
    """Write the page, and its pictures into the folder ``images`` beside it."""
    measurements, predictions = (results.get(stage, {}).get("points", {}) for stage in ("live", "predict"))
    lines = [
        f"# Measured on {machine['name']}",
        "",
        f"vLLM {machine['vllm']}, torch {machine['torch']}, {machine['processors']} processors.",
        f"The model is a Llama of the size `{settings['size']}` with made-up weights.",
        "",
        "```bash",
        command,
        "```",
        "",
        "| stage | wall time, s |",
        "|---|---|",
        *(f"| {stage} | {value['wall_s']:.0f} |" for stage, value in results.items()),
        "",
        *_gpu_bench_engine_lines(results),
    ]
    if measurements:
        lines += _gpu_bench_live_lines(measurements, predictions, settings["loads"])
        lines += (
            _draw_gpu_bench_pictures(page, measurements, predictions, settings["loads"])
            if plots.can_plot_papers()
            else []
        )
    page.parent.mkdir(parents=True, exist_ok=True)
    core_write_file(page, "\n".join(lines).rstrip() + "\n")


def _gpu_bench_engine_lines(results: Mapping[str, Value]) -> list[str]:
    lines = []
    if "calibrate" in results:
        errors = results["calibrate"]["profile"]["fit_error"]
        text = ", ".join(
            f"{name} {value:.1%}" if isinstance(value, float) else f"{name} {value}"
            for name, value in errors.items()
        )
        lines += ["## The engine", "", f"Calibrated step times, errors of the fit: {text}."]
    if "overhead" in results:
        cost = results["overhead"]["segmented_over_unsegmented"]
        lines.append(
            f"Segmented over unsegmented: median {cost['median']:.3f} of {cost['pairs']} pairs"
            f" (p10 {cost['p10']:.3f}, p90 {cost['p90']:.3f})."
        )
    if "plain" in results:
        lines += ["", *_gpu_bench_plain_lines(results["plain"])]
    return [*lines, ""] if lines else []


def _gpu_bench_plain_lines(plain: Value) -> list[str]:
    lines = [
        "Ordinary requests, measured by `vllm bench serve`, over stock `vllm serve` with the same CUDA graphs:",
        "",
        "| | with our scheduler | through `timely serve` | stock |",
        "|---|---|---|---|",
    ]
    for name, field in MEASURES.items():
        ratio, stock = plain[name], plain["medians"]["stock"][field]
        lines.append(
            f"| {name.removesuffix('_ratio').replace('_', ' ')} | {ratio['plugged']:.3f}"
            f" | {ratio['served']:.3f} | {stock:.1f} {PLAIN_UNITS.get(field, 'ms')} |"
        )
    return lines


def _gpu_bench_live_lines(measurements: Value, predictions: Value, loads: Sequence[float]) -> list[str]:
    lines = [
        "## WID 2 at several loads",
        "",
        "The prediction was registered before the runs.",
        "Response and waiting: measured / predicted, seconds.",
        "",
        "| load | system | urgent in time | all in time | utility, urgent | served | "
        + " | ".join(TIME_VALUES)
        + " |",
        "|---" * (6 + len(TIME_VALUES)) + "|",
    ]
    for load in loads:
        for system, values in measurements.get(gpu_bench_point_name(load), {}).items():
            prediction = predictions.get(gpu_bench_point_name(load), {}).get(system, {})
            pairs = [f"{values[name]:.3f} / {prediction.get(name, float('nan')):.3f}" for name in TIME_VALUES]
            shares = [
                f"{values[name]:.3f}" if name in values else ""
                for name in (IN_TIME, "in time, all", "utility, urgent", "served")
            ]
            lines.append(f"| {load:g} | `{system}` | {' | '.join([*shares, *pairs])} |")
    lines.append("")
    error = gpu_bench_prediction_error(measurements, predictions)
    if error is not None:
        lines.append(f"Mean error of the prediction: {error:.1%}.")
    ratio = gpu_bench_first_action_ratio(measurements, 1.0)
    if ratio is not None:
        verdict = "met" if ratio >= FIRST_ACTION_REACH else "not met"
        lines.append(
            f"First action at the published load: whole answers take {ratio:.2f} times as long as ours"
            f" (aim: {FIRST_ACTION_REACH:g}, {verdict})."
        )
    return lines


def _draw_gpu_bench_pictures(
    page: Path, measurements: Value, predictions: Value, loads: Sequence[float]
) -> list[str]:
    """Draw the pictures for which there are values; the lines of the page that show them."""
    lines: list[str] = []
    folder = page.parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    shares: dict[str, list[Measured]] = {}
    for system in GPU_SYSTEMS:
        values = [
            measurements.get(gpu_bench_point_name(load), {}).get(system, {}).get(IN_TIME) for load in loads
        ]
        if None not in values:
            shares[system] = values
    if shares:
        title = "Urgent tasks in time, WID 2"
        plots.paper_line_plot(folder / "gpu-in-time.png", title, loads, shares, "load", "share", floor=0.0)
        lines += ["", "![Urgent tasks in time](images/gpu-in-time.png)"]
    bars: dict[str, list[Measured | None]] = {"measured": [], "predicted": []}
    groups = []
    for load in loads:
        for system, values in measurements.get(gpu_bench_point_name(load), {}).items():
            prediction = predictions.get(gpu_bench_point_name(load), {}).get(system)
            if prediction is None:
                continue
            groups.append(f"{system}\n{load:g}")
            for name, source in (("measured", values), ("predicted", prediction)):
                bars[name].append(source["response mean"])
    if groups:
        plots.paper_bars(
            folder / "gpu-predicted.png", "Mean response, measured and predicted", groups, bars, "s"
        )
        lines += ["", "![Prediction](images/gpu-predicted.png)"]
    return lines
