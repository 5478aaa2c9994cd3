"""A replay as a Chrome trace: open it at ui.perfetto.dev or chrome://tracing.

Process 1 is the engine: one slice a step, and counters for queue and KV cache.
Process 2 holds the requests: queued, prompt, decode, parked.
Process 3 holds the robots, one thread each: waiting, executing.
Times are microseconds.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

ENGINE, REQUESTS, ROBOTS = 1, 2, 3


def replay_perfetto_text(result: Mapping[str, Any]) -> str:
    """The result of a replay as Chrome trace JSON, one event a line."""
    lines = ",\n".join(
        json.dumps(event, ensure_ascii=False, allow_nan=False) for event in replay_perfetto_events(result)
    )
    return '{"displayTimeUnit": "ms", "traceEvents": [\n' + lines + "\n]}\n"


def replay_perfetto_events(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for process, name in ((ENGINE, "engine"), (REQUESTS, "requests"), (ROBOTS, "robots")):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    yield from _perfetto_engine_events(result)
    yield from _perfetto_request_events(result)
    yield from _perfetto_robot_events(result)


def _perfetto_us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _perfetto_thread(process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}


def _perfetto_slice(
    process: int, thread: int, name: str, begin: float, end: float, **arguments: object
) -> dict[str, Any]:
    return {
        "ph": "X", "pid": process, "tid": thread, "name": name, "ts": _perfetto_us(begin),
        "dur": _perfetto_us(max(0.0, end - begin)), "args": arguments,
    }  # fmt: skip


def _perfetto_engine_events(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    journal = result.get("journal") or {}
    begins, times = journal.get("t_s", []), journal.get("step_s", [])
    sequences, prompt = [0] * len(begins), [0] * len(begins)
    for runs in journal.get("runs", {}).values():
        for kind, first, last, tokens in runs:
            for step in range(first, last + 1):
                sequences[step] += 1
                prompt[step] += tokens if kind else 0
    for step, (begin, time_s) in enumerate(zip(begins, times, strict=True)):
        name = f"{sequences[step]} sequences" + (f", {prompt[step]} prompt tokens" if prompt[step] else "")
        yield _perfetto_slice(ENGINE, 0, name, begin, begin + time_s, step=step)
    series = result.get("series") or {}
    for name in ("waiting", "running", "parked", "kv_used"):
        for t, value in zip(series.get("t_s", []), series.get(name, []), strict=False):
            yield {"ph": "C", "pid": ENGINE, "name": name, "ts": _perfetto_us(t), "args": {name: value}}


def _perfetto_request_events(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    journal = result.get("journal") or {}
    begins, times = journal.get("t_s", []), journal.get("step_s", [])
    for thread, job in enumerate(result["jobs"]):
        yield _perfetto_thread(REQUESTS, thread, f"job {job['job']} {job['class']}")
        spans = []
        for kind, first, last, tokens in journal.get("runs", {}).get(str(job["job"]), []):
            spans += _perfetto_step_runs(kind, first, last, tokens, begins, times)
        if not spans:
            if job["first_token_s"] is not None:
                spans = [("generating", job["first_token_s"], job["last_token_s"], job["output_tokens"])]
            else:
                continue
        if spans[0][1] > job["arrival_s"]:
            yield _perfetto_slice(REQUESTS, thread, "queued", job["arrival_s"], spans[0][1])
        previous = None
        for name, begin, end, tokens in spans:
            if previous is not None and begin > previous + 1e-9:
                yield _perfetto_slice(REQUESTS, thread, "parked or queued", previous, begin)
            yield _perfetto_slice(REQUESTS, thread, name, begin, end, tokens=tokens)
            previous = end


def _perfetto_step_runs(
    kind: int, first: int, last: int, tokens: int, begins: list[float], times: list[float]
) -> list[tuple[str, float, float, int]]:
    """A run of steps, cut where the engine stood still in between (all jobs were parked)."""
    name = "prompt" if kind else "decode"
    spans: list[tuple[str, float, float, int]] = []
    begin, count = begins[first], 0
    for step in range(first, last + 1):
        count += tokens
        end = begins[step] + times[step]
        if step == last or begins[step + 1] > end + 1e-9:
            spans.append((name, begin, end, count))
            if step < last:
                begin, count = begins[step + 1], 0
    return spans


def _perfetto_robot_events(result: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row a robot, and further ones for tasks that arrive before its earlier tasks end: slices of a row nest."""
    rows: dict[str, list[tuple[int, float]]] = {}
    threads = 0
    for job in sorted(result["jobs"], key=lambda job: job["arrival_s"]):
        agent, free = job["agent"] or f"job {job['job']}", job["arrival_s"]
        own = rows.setdefault(agent, [])
        row = next((row for row, (_, end_s) in enumerate(own) if end_s <= free), len(own))
        if row == len(own):
            own.append((threads, free))
            yield _perfetto_thread(ROBOTS, threads, f"{agent} ({row + 1})" if row else agent)
            threads += 1
        thread = own[row][0]
        for segment in job["segments"]:
            if segment["start_s"] > free:
                yield _perfetto_slice(ROBOTS, thread, "waiting", free, segment["start_s"], job=job["job"])
            yield _perfetto_slice(
                ROBOTS, thread, f"segment {segment['index']}", segment["start_s"], segment["end_s"],
                job=job["job"], task=job.get("task", ""),
            )  # fmt: skip
            free = segment["end_s"]
        own[row] = thread, free
