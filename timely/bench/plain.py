"""Ordinary requests on stock vLLM, on vLLM with our scheduler, and on ``timely serve``, measured by vLLM's own client.

The servers take turns in each repetition with the same engine arguments, so that a machine that drifts hurts all of
them.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from timely.bench.checkpoints import BenchOutOfTime
from timely.core.checkpoint import load_core_checkpoint, remove_checkpoint, save_core_checkpoint
from timely.core.child_process import ChildProcess, free_tcp_port
from timely.core.errors import EngineFailed
from timely.core.progress import Say
from timely.engines.vllm.arguments import ALLOCATOR_VARIABLE, cpu_allocator_settings

SERVERS = ("stock", "plugged", "served")
"""``vllm serve``; the same with our scheduler; ``timely serve``."""

INPUT_TOKENS, OUTPUT_TOKENS = 64, 48
PROMPTS, CONCURRENCY = 96, 24
QUICK_PROMPTS = 48
START_S, CLIENT_S = 600.0, 900.0
MEASURES = {
    "throughput_ratio": "output_throughput",
    "ttft_p50_ratio": "p50_ttft_ms",
    "ttft_p99_ratio": "p99_ttft_ms",
    "itl_p50_ratio": "p50_itl_ms",
    "itl_p99_ratio": "p99_itl_ms",
    "steps_ratio": "steps",
    "front_end_ratio": "front_end_s",
}
"""Name of a ratio -> field of the client's result, or of ``_server_work``, which a noisy machine changes little."""

STEP_COUNT = "vllm:iteration_tokens_total_count"
"""vLLM's metric; one series an engine."""

SCHEDULER = "timely.engines.vllm.scheduler.TimelyScheduler"


Run = Callable[[str, int], Mapping[str, float]]
"""Loads a server with the requests of a seed; returns the fields of ``MEASURES``, measured by the client."""


def benchmark_plain_throughput(
    run: Run,
    repetitions: int,
    say: Say,
    checkpoint: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    budget_s: float = math.inf,
) -> dict[str, Any]:
    """Ratios over stock of the medians of all repetitions.

    Args:
        checkpoint: a file of the runs so far. A call that finds it goes on after them, and removes it at its end.
        settings: what the runs in the checkpoint have in common.
        budget_s: no run begins that would end later, if it takes as long as those before it. The first one always does.

    Returns ``{NAME: {"plugged", "served"}, "medians": {server: {field: value}}, "runs": {server: [{field: value}]}}``.
    Names and fields are those of ``MEASURES``.

    Raises:
        EngineFailed: a server did not start, or the client failed.
        InvalidInput: the checkpoint is of other settings.
        OutOfTime: the budget is used up.
    """
    settings = {**(settings or {}), "measures": sorted(MEASURES)}
    begin_s, done = time.monotonic(), 0
    runs: dict[str, list[Mapping[str, float]]] = {server: [] for server in SERVERS}
    runs |= load_core_checkpoint(checkpoint, settings) or {}
    for repetition in range(repetitions):
        first = repetition % len(SERVERS)
        for server in SERVERS[first:] + SERVERS[:first]:
            if len(runs[server]) > repetition:
                continue
            if done and (time.monotonic() - begin_s) * (done + 1) / done > budget_s:
                run_count = sum(map(len, runs.values()))
                raise BenchOutOfTime(run_count, repetitions * len(SERVERS) - run_count)
            result = run(server, repetition)
            done += 1
            runs[server].append({field: result[field] for field in MEASURES.values()})
            save_core_checkpoint(checkpoint, settings, runs)
            say(f"repetition {repetition + 1}, {server}: {result['output_throughput']:.0f} tokens/s")
    medians = {
        server: {field: statistics.median(row[field] for row in rows) for field in MEASURES.values()}
        for server, rows in runs.items()
    }
    ratios = {
        name: {server: medians[server][field] / medians["stock"][field] for server in SERVERS[1:]}
        for name, field in MEASURES.items()
    }
    remove_checkpoint(checkpoint)
    return {**ratios, "medians": medians, "runs": runs}


class VllmBench:
    """Starts a server, loads it with ``vllm bench serve``, and ends it.

    Args:
        folder: of logs and results.
        model: folder of the model.
        arguments: of vLLM, the same for all servers.
        discipline: of the servers with our scheduler.
        prompts: requests of a run.
        keep: start each server once and leave it idle between its runs. All must fit into memory together. They start
            side by side if ``arguments`` have the size of the cache; else vLLM measures the memory that is free.
    """

    def __init__(
        self,
        folder: Path,
        model: str,
        arguments: Sequence[str],
        discipline: str,
        prompts: int = PROMPTS,
        keep: bool = False,
    ) -> None:
        self._folder = folder
        self._model = model
        self._arguments = tuple(arguments)
        self._discipline = discipline
        self._prompts = prompts
        self._keep = keep
        self._together = keep and "--kv-cache-memory-bytes" in self._arguments
        self._running: dict[str, tuple[ChildProcess, int]] = {}

    def run(self, server: str, seed: int) -> Mapping[str, float]:
        try:
            if server not in self._running:
                names = SERVERS if self._together else (server,)
                for name in names:
                    self._start(name, seed)
                for name in names:
                    process, port = self._running[name]
                    process.wait_until(partial(_is_vllm_bench_server_healthy, port), START_S)
            return self._load(server, self._running[server][1], seed)
        except BaseException:
            self.close()
            raise
        finally:
            if not self._keep:
                self.close()

    def _start(self, server: str, seed: int) -> None:
        port = free_tcp_port()
        environment = {
            "TIMELY_DISCIPLINE": self._discipline,
            "VLLM_LOGGING_LEVEL": "WARNING",
            # vLLM's default, with which `timely serve` has a worker like the others.
            "VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "auto"),
            # Those of `timely serve`: in small pages a server can be slower than its twin for as long as it lives.
            ALLOCATOR_VARIABLE: cpu_allocator_settings(),
            # The cache of `timely serve`: stock vLLM does not start where 92% of the memory are not free.
            "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
        }
        log = self._folder / f"{server}-{seed}.log"
        process = ChildProcess(f"server {server}", self._command(server, port), environment, log=log)
        self._running[server] = process, port
        process.start()

    def close(self) -> None:
        while self._running:
            _, (process, _) = self._running.popitem()
            process.stop()

    def _command(self, server: str, port: int) -> list[str]:
        if server == "served":
            program, model = "timely", ["--model", self._model, "--discipline", self._discipline]
        else:
            program, model = "vllm", [self._model]
        plug = ["--scheduler-cls", SCHEDULER] if server == "plugged" else []
        listen = ["--host", "127.0.0.1", "--port", str(port)]
        return [_vllm_bench_script(program), "serve", *model, *listen, *plug, *self._arguments]

    def _load(self, server: str, port: int, seed: int) -> Mapping[str, float]:
        import httpx

        target = self._folder / f"{server}-{seed}.json"
        url = f"http://127.0.0.1:{port}"
        served_name = httpx.get(f"{url}/v1/models", timeout=30.0).json()["data"][0]["id"]
        command = [
            _vllm_bench_script("vllm"), "bench", "serve", "--backend", "openai",
            "--base-url", url, "--model", self._model, "--served-model-name", served_name,
            "--dataset-name", "random", "--random-input-len", str(INPUT_TOKENS),
            "--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(self._prompts),
            "--max-concurrency", str(CONCURRENCY), "--ignore-eos", "--disable-tqdm", "--seed", str(seed),
            "--percentile-metrics", "ttft,itl", "--metric-percentiles", "50,99",
            "--save-result", "--result-dir", str(self._folder), "--result-filename", target.name,
        ]  # fmt: skip
        client = ChildProcess("client", command, log=target.with_suffix(".client.log"))
        pid = self._running[server][0].pid
        before = _server_work(pid, url)
        try:
            client.start()
            client.finish(CLIENT_S)
        finally:
            client.close()
        result: dict[str, float] = json.loads(target.read_text(encoding="utf-8"))
        if result.get("completed") != self._prompts:
            raise EngineFailed(
                f"{result.get('completed')} of {self._prompts} requests completed", where=server
            )
        work = {name: value - before[name] for name, value in _server_work(pid, url).items()}
        return {**result, **work}


def _server_work(pid: int, url: str) -> dict[str, float]:
    """What a server has done since its start: ``steps`` of its engine, and ``front_end_s``.

    The latter are processor seconds of the server's own process: HTTP, prompts to tokens and tokens to text.
    """
    import httpx

    lines = httpx.get(f"{url}/metrics", timeout=30.0).text.splitlines()
    steps = [line.rpartition(" ")[2] for line in lines if line.startswith(STEP_COUNT)]
    ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    return {"steps": sum(map(float, steps)), "front_end_s": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")}


def _vllm_bench_script(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _is_vllm_bench_server_healthy(port: int) -> bool:
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False
