"""``timely bench plain`` on a fake: servers take turns, ratios are of medians over stock."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from timely.bench import plain
from timely.bench.plain import MEASURES, SERVERS, VllmBench, benchmark_plain_throughput
from timely.cli.main import run_timely_command
from timely.core.errors import EngineFailed, InvalidInput

SPEED = {"stock": 100.0, "plugged": 90.0, "served": 80.0}


class FakeBench:
    """Measures a fixed speed, three times as high in one repetition that a median leaves out."""

    def __init__(self) -> None:
        self.turns: list[str] = []

    def run(self, server: str, seed: int) -> Mapping[str, float]:
        self.turns.append(server)
        speed = SPEED[server] * (3.0 if seed == 1 else 1.0)
        self.closed = False
        return {field: speed if "throughput" in field else 1000.0 / speed for field in MEASURES.values()}

    def close(self) -> None:
        self.closed = True


class FakeProcess:
    """A server that starts at once."""

    events: ClassVar[list[str]] = []
    broken: ClassVar[tuple[str, ...]] = ()

    environments: ClassVar[list[Mapping[str, str]]] = []

    def __init__(self, name: str, command: object, environment: Mapping[str, str], **more: object) -> None:
        self.name = name
        self.environments.append(environment)

    def start(self) -> None:
        self.events.append(f"start {self.name}")

    def wait_until(self, healthy: object, seconds: float) -> None:
        if self.name in self.broken:
            raise EngineFailed("ended with 1", where=self.name)

    def stop(self) -> None:
        self.events.append(f"stop {self.name}")


@pytest.mark.parametrize(("keep", "starts"), [(True, 3), (False, 6)])
def test_kept_servers_are_started_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: bool, starts: int
) -> None:
    monkeypatch.setattr(plain, "ChildProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "events", [])
    bench = VllmBench(tmp_path, "/model", (), "timely", 48, keep)
    monkeypatch.setattr(
        bench, "_load", lambda *a: dict.fromkeys(MEASURES.values(), 1.0) | {"output_throughput": 1.0}
    )
    benchmark_plain_throughput(bench.run, 2, lambda line: None)
    bench.close()
    events = FakeProcess.events
    assert sum(event.startswith("start") for event in events) == starts
    assert sum(event.startswith("stop") for event in events) == starts


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("arguments", [("--kv-cache-memory-bytes", "2000000000"), ()])
def test_servers_start_side_by_side_only_if_none_measures_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: bool, arguments: tuple[str, ...]
) -> None:
    """On a GPU vLLM refuses to start while another server takes memory, unless it is told the size of its cache."""
    monkeypatch.setattr(plain, "ChildProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "events", [])
    bench = VllmBench(tmp_path, "/model", arguments, "timely", 48, keep)
    monkeypatch.setattr(bench, "_load", lambda server, *rest: FakeProcess.events.append("load"))
    bench.run("plugged", 0)
    before = FakeProcess.events[: FakeProcess.events.index("load")]
    together = [f"start server {server}" for server in SERVERS]
    assert before == (together if keep and arguments else ["start server plugged"])
    bench.close()


def test_on_processors_no_server_asks_for_all_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plain, "ChildProcess", FakeProcess)
    for own, space in ((None, "1"), ("3", "3")):
        FakeProcess.environments.clear()
        monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
        if own is not None:
            monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", own)
        bench = VllmBench(tmp_path, "model", (), "timely", 4)
        for server in SERVERS:
            bench._start(server, 0)
        assert [one["VLLM_CPU_KVCACHE_SPACE"] for one in FakeProcess.environments] == [space] * 3


def test_a_server_that_does_not_start_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plain, "ChildProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "events", [])
    monkeypatch.setattr(FakeProcess, "broken", ("server served",))
    bench = VllmBench(tmp_path, "/model", ("--kv-cache-memory-bytes", "1"), "timely", 48, keep=True)
    with pytest.raises(EngineFailed, match="ended with 1"):
        bench.run("stock", 0)
    assert {f"stop server {server}" for server in SERVERS} <= set(FakeProcess.events)


def test_ratios_are_of_medians_over_stock_and_servers_take_turns() -> None:
    bench = FakeBench()
    result = benchmark_plain_throughput(bench.run, 3, lambda line: None)
    assert result["throughput_ratio"] == pytest.approx({"plugged": 0.9, "served": 0.8})
    assert result["ttft_p50_ratio"] == pytest.approx({"plugged": 1 / 0.9, "served": 1 / 0.8})
    assert bench.turns[:3] == list(SERVERS)
    assert bench.turns[3:6] == ["plugged", "served", "stock"]


def test_an_interrupted_run_goes_on_after_its_last_measurement(tmp_path: Path) -> None:
    class Interrupted(FakeBench):
        def run(self, server: str, seed: int) -> Mapping[str, float]:
            if len(self.turns) == 4:
                raise KeyboardInterrupt
            return super().run(server, seed)

    file, settings = tmp_path / "plain.json.partial", {"discipline": "pud"}
    with pytest.raises(KeyboardInterrupt):
        benchmark_plain_throughput(Interrupted().run, 3, lambda line: None, file, settings)
    with pytest.raises(InvalidInput, match="no checkpoint of this run"):
        benchmark_plain_throughput(FakeBench().run, 3, lambda line: None, file, {"discipline": "timely"})
    bench, undisturbed = FakeBench(), FakeBench()
    result = benchmark_plain_throughput(bench.run, 3, lambda line: None, file, settings)
    assert result == benchmark_plain_throughput(undisturbed.run, 3, lambda line: None)
    assert bench.turns == undisturbed.turns[4:]
    assert not file.exists()


def test_what_a_server_has_done_is_read_from_its_metrics_and_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two engines."""
    page = (
        "# TYPE vllm:iteration_tokens_total histogram\n"
        'vllm:iteration_tokens_total_bucket{engine="0",le="1.0"} 90.0\n'
        'vllm:iteration_tokens_total_sum{engine="0"} 5000.0\n'
        'vllm:iteration_tokens_total_count{engine="0"} 99.0\n'
        'vllm:iteration_tokens_total_count{engine="1"} 1.0\n'
    )
    monkeypatch.setattr(httpx, "get", lambda url, timeout: httpx.Response(200, text=page))
    before_s = sum(os.times()[:2])
    work = plain._server_work(os.getpid(), "http://127.0.0.1:1")
    assert work["steps"] == 100.0
    assert before_s - 0.02 <= work["front_end_s"] <= sum(os.times()[:2]) + 0.02


def test_all_servers_get_the_same_arguments_and_model(tmp_path: Path) -> None:
    bench = VllmBench(tmp_path, "/model", ("--dtype", "bfloat16"), "pud")
    commands = {server: bench._command(server, 8000) for server in SERVERS}
    assert all("/model" in words and words[-2:] == ["--dtype", "bfloat16"] for words in commands.values())
    assert plain.SCHEDULER in commands["plugged"]
    assert plain.SCHEDULER not in commands["stock"]
    assert Path(commands["served"][0]).name == "timely"


@pytest.mark.engine
def test_the_command_writes_the_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    monkeypatch.setattr(plain, "VllmBench", lambda *arguments: FakeBench())
    target = tmp_path / "plain.json"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    arguments = ["--repetitions", "1", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    assert run_timely_command(["bench", "plain", *arguments, "--json", str(target)]) == 0
    assert json.loads(target.read_text())["throughput_ratio"] == {"plugged": 0.9, "served": 0.8}
    assert "throughput_ratio" in capsys.readouterr().out
