"""The HTML report of a replay: one file that loads nothing from elsewhere, so it can be mailed and archived."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from timely.replay.svg import Line, Mark, replay_svg_chart

MAX_TIMELINE_JOBS = 20_000
"""Jobs drawn in the timeline; the first ones of a longer trace."""

WORST = 15
"""Number of listed jobs with the largest loss of utility."""

CLASSES = (("urgent", "urgent"), ("normal", "normal"))

SERIES_LABEL = "seconds; each value stands until the next step, also while no step runs"


def html_replay_report(result: Mapping[str, Any]) -> str:
    """The HTML report of a result (``timely replay --json``)."""
    title = f"{result['trace']}: {result['discipline']}, {result['mode']}"
    waits = _report_cumulative_chart(result, "Waiting time, all segments", "waiting_time_s")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_report_asset('report.css')}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="lead">{_report_lead(result)}</p>',
            '<p class="partial">Interrupted: these are the results so far.</p>' if result["partial"] else "",
            _report_tiles(result),
            "<h2>By class</h2>",
            _report_classes(result["summary"]),
            "<h2>Distributions</h2>",
            f'<div class="charts">{_report_responses(result)}{_report_utilities(result)}{waits}</div>',
            "<h2>Queue and KV cache</h2>",
            f'<div class="charts">{_report_queue_chart(result)}{_report_memory_chart(result)}</div>',
            "<h2>Robots</h2>",
            _report_timeline(result),
            "<h2>Lost most utility</h2>",
            _report_worst_jobs(result["jobs"]),
            '<div id="tip"></div>',
            f"<script>{_report_asset('report.js')}</script>",
            "</main></body></html>",
            "",
        ]
    )


def _report_asset(name: str) -> str:
    return (resources.files("timely.replay") / "assets" / name).read_text(encoding="utf-8")


def _report_lead(result: Mapping[str, Any]) -> str:
    parts = [f"engine {result['engine']}", f"profile {result['profile']}", f"seed {result['seed']}"]
    parts.append(f"{result['end_s']:.1f} s of trace in {result['wall_s']:.2f} s")
    return escape(" · ".join(parts))


def _report_number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _report_percent(value: float | None, of: float | None = 1.0) -> str:
    return "–" if value is None or not of else f"{100 * value / of:.1f}%"


def _report_tiles(result: Mapping[str, Any]) -> str:
    summary, counters = result["summary"], result["counters"]
    urgent = summary["by_class"]["urgent"]
    tiles = [
        (f"{summary['jobs']}", "tasks"),
        (_report_percent(summary["share_served"]), "share served"),
        (_report_percent(summary["utility_mean"], summary["utility_max_mean"]), "of the possible utility"),
        (_report_percent(urgent["utility_mean"], urgent["utility_max_mean"]), "of it, urgent tasks"),
        (f"{_report_number(summary['response_s']['p50'])} s", "response, median"),
        (f"{_report_number(summary['response_s']['p99'])} s", "response, 99th percentile"),
        (f"{_report_number(summary['waiting_s']['mean'])} s", "waiting, mean"),
    ]
    if "evictions" in counters:
        tiles.append((f"{counters['evictions']}", "evictions"))
    if "busy_s" in counters and result["end_s"]:
        tiles.append((_report_percent(counters["busy_s"], result["end_s"]), "accelerator busy"))
    inner = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{label}</span></div>' for value, label in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _report_classes(summary: Mapping[str, Any]) -> str:
    head = "".join(
        f"<th>{name}</th>"
        for name in (
            "class", "tasks", "share served", "utility", "of at most", "response mean, s", "p50", "p90", "p99",
            "waiting mean, s", "p50", "p90", "p99",
        )
    )  # fmt: skip
    rows = []
    for name, group in [("all", summary), *summary["by_class"].items()]:
        cells = [
            name, str(group["jobs"]), _report_percent(group["share_served"]), _report_number(group["utility_mean"]),
            _report_number(group["utility_max_mean"]),
        ]  # fmt: skip
        for measure in ("response_s", "waiting_s"):
            cells += [_report_number(group[measure][key]) for key in ("mean", "p50", "p90", "p99")]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _report_ecdf(values: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """Values in ascending order, and the share of all up to each; without a value it never comes."""
    ascending = sorted(value for value in values if value is not None)
    return ascending, [(index + 1) / len(values) for index in range(len(ascending))]


def _report_cumulative_chart(
    result: Mapping[str, Any], title: str, field: str, marks: Sequence[Mark] = ()
) -> str:
    lines, longest = [], [0.0]
    for name, css in CLASSES:
        x, y = _report_ecdf([job[field] for job in result["jobs"] if job["class"] == name])
        if x:
            # The last percent may be far out: the axis ends a little after the 99th percentile.
            longest.append(x[int(0.99 * (len(x) - 1))] * 1.15)
            lines.append(Line(name, css, [x[0], *x], [0.0, *y], step=True))
    return replay_svg_chart(
        title, lines, x_label="seconds", y_label="share of tasks", y_max=1.0, x_max=max(longest), marks=marks
    )


def _report_responses(result: Mapping[str, Any]) -> str:
    marks = [Mark(ert, f"ERT {ert:g} s", name) for name, ert in sorted(_report_expected_responses(result))]
    return _report_cumulative_chart(result, "Response time", "response_time_s", marks)


def _report_expected_responses(result: Mapping[str, Any]) -> set[tuple[str, float]]:
    values = {(job["class"], job["ert_s"]) for job in result["jobs"] if "ert_s" in job}
    return values if len(values) <= 4 else set()


def _report_utilities(result: Mapping[str, Any]) -> str:
    lines = []
    for name, css in CLASSES:
        shares = [j["utility"] / j["utility_max"] for j in result["jobs"] if j["class"] == name]
        if shares:
            x, y = _report_ecdf(shares)
            low = max(x[0], -1.0)
            lines.append(Line(name, css, [low, *(max(v, low) for v in x)], [0.0, *y], step=True))
    return replay_svg_chart(
        "Utility, of the task's maximum", lines, x_label="share of the maximum", y_label="share of tasks", y_max=1.0,
        x_max=1.0,
    )  # fmt: skip


def _report_queue_chart(result: Mapping[str, Any]) -> str:
    series = result["series"]
    t = series.get("t_s", [])
    lines = [
        Line("waiting", "urgent", t, series.get("waiting", []), step=True),
        Line("in the step", "normal", t, series.get("running", []), area=True, step=True),
        Line("parked", "third", t, series.get("parked", []), step=True),
    ]
    return replay_svg_chart(
        "Generations, as steps begin", lines if t else [], x_label=SERIES_LABEL, y_label="generations"
    )


def _report_memory_chart(result: Mapping[str, Any]) -> str:
    series = result["series"]
    t = series.get("t_s", [])
    line = Line(
        "KV cache in use", "fourth", t, [100 * v for v in series.get("kv_used", [])], area=True, step=True
    )
    return replay_svg_chart(
        "KV cache, as steps begin",
        [line] if t else [],
        x_label=SERIES_LABEL,
        y_label="% of blocks",
        y_max=100.0,
    )


def _report_timeline(result: Mapping[str, Any]) -> str:
    jobs = result["jobs"][:MAX_TIMELINE_JOBS]
    rows: dict[str, int] = {}
    entries = []
    for job in jobs:
        row = rows.setdefault(job["agent"] or f"job {job['job']}", len(rows))
        entries.append(
            {
                "r": row, "j": job["job"], "a": job["arrival_s"], "u": job["class"] == "urgent",
                "t": (job.get("task") or "")[:80], "p": job["response_time_s"], "v": job["utility"],
                "done": job["outcome"] != "unfinished",
                "s": [[segment["start_s"], segment["end_s"]] for segment in job["segments"]],
            }
        )  # fmt: skip
    order = sorted(rows, key=_report_name_key)
    place = {rows[name]: index for index, name in enumerate(order)}
    for entry in entries:
        entry["r"] = place[entry["r"]]
    data = json.dumps({"end": result["end_s"], "robots": order, "jobs": entries}, allow_nan=False)
    # A task's text must not end the script element.
    data = data.replace("<", "\\u003c")
    note = (
        "" if len(jobs) == len(result["jobs"]) else f" The first {len(jobs)} of {len(result['jobs'])} tasks."
    )
    return (
        '<p class="note">Wheel zooms, dragging moves, shift and wheel scrolls.'
        f'{note} <span class="key waiting">waits</span><span class="key urgent">executes, urgent</span>'
        '<span class="key normal">executes, normal</span> <button id="all">Show all</button></p>'
        '<figure><canvas id="timeline" role="img" aria-label="What each robot did over time"></canvas></figure>'
        f'<script type="application/json" id="timeline-data">{data}</script>'
    )


def _report_name_key(name: str) -> tuple[str, int, str, str]:
    """Sorts by the number at the end, which may have any length; names without one are first."""
    head = name.rstrip("0123456789")
    tail = name[len(head) :]
    digits = tail.lstrip("0")
    return head, len(digits) if tail else -1, digits, name


def _report_worst_jobs(jobs: Sequence[Mapping[str, Any]]) -> str:
    losers = [job for job in jobs if job["utility_max"] - job["utility"] > 1e-9]
    losers.sort(key=lambda job: (job["utility"] - job["utility_max"], str(job["job"])))
    if not losers:
        return '<p class="note">Every task has its full utility.</p>'
    head = '<th>job</th><th class="text">task</th>' + "".join(
        f"<th>{name}</th>" for name in ("class", "response, s", "waiting, s", "utility", "lost", "evicted")
    )
    rows = []
    for job in losers[:WORST]:
        rows.append(
            f'<tr><td>{escape(str(job["job"]))}</td><td class="text">{escape(job.get("task") or "")}</td>'
            f"<td>{job['class']}</td><td>{_report_number(job['response_time_s'])}</td><td>{_report_number(job['waiting_time_s'])}</td>"
            f"<td>{_report_number(job['utility'], 2)}</td>"
            f"<td>{_report_number(job['utility_max'] - job['utility'], 2)}</td>"
            f"<td>{job['preemptions']}</td></tr>"
        )
    return (
        f'<p class="note">{len(losers)} of {len(jobs)} tasks lost some. <code>timely explain RESULT.json JOB</code>'
        f' says why.</p><div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
    )
