"""A long evaluation stops and goes on: nothing is computed twice, no line that was cut off is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.bench.checkpoints import BenchCheckpoints, BenchOutOfTime
from timely.bench.code_hash import (
    ROOT,
    _bench_code_without_comments,
    _shared_bench_code_files,
    benchmark_files_hash,
)
from timely.core.errors import InvalidInput


class Counting:
    """A measurement that keeps its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __call__(self, name: str, seed: int) -> list[float]:
        self.calls.append((name, seed))
        return [seed / 2.0, 1.0]


ARGUMENTS = [("a", 1), ("b", 1), ("a", 2)]


@pytest.mark.process
def test_a_second_run_reads_what_the_first_computed(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    path = tmp_path / "folder" / "checkpoints.jsonl"
    results = BenchCheckpoints(path).map("fig", first, ARGUMENTS)
    assert results == [[0.5, 1.0], [0.5, 1.0], [1.0, 1.0]]
    assert BenchCheckpoints(path).map("fig", second, [*ARGUMENTS, ("c", 3)]) == [*results, [1.5, 1.0]]
    assert first.calls == ARGUMENTS
    assert second.calls == [("c", 3)]


def test_experiments_do_not_share_results(tmp_path: Path) -> None:
    count = Counting()
    checkpoints = BenchCheckpoints(tmp_path / "c.jsonl")
    checkpoints.map("one", count, ARGUMENTS)
    checkpoints.map("two", count, ARGUMENTS)
    assert len(count.calls) == 6
    assert len(checkpoints) == 6


def test_out_of_time_keeps_what_is_done(tmp_path: Path) -> None:
    ticks = iter(range(100))
    count = Counting()
    path = tmp_path / "c.jsonl"
    with pytest.raises(BenchOutOfTime) as error:
        BenchCheckpoints(path, budget_s=3.0, seconds=lambda: float(next(ticks))).map("fig", count, ARGUMENTS)
    assert (error.value.done, error.value.left) == (2, 1)
    BenchCheckpoints(path).map("fig", count, ARGUMENTS)
    assert count.calls == ARGUMENTS


def square(number: int) -> int:
    return number * number


def test_processes_compute_the_same_results(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    arguments = [(n,) for n in range(7)]
    assert BenchCheckpoints(path, jobs=3).map("square", square, arguments) == [n * n for n in range(7)]
    again = BenchCheckpoints(path, budget_s=0.0, jobs=3).map("square", square, arguments)
    assert again[-1] == 36, "all are kept"
    with pytest.raises(BenchOutOfTime) as error:
        BenchCheckpoints(path, budget_s=0.0, jobs=3).map("square", square, [(n,) for n in range(20)])
    assert (error.value.done, error.value.left) == (7, 13)


def test_a_line_cut_off_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    BenchCheckpoints(path).map("fig", Counting(), ARGUMENTS)
    whole = path.read_text()
    path.write_text(whole[:-10])
    count = Counting()
    assert BenchCheckpoints(path).map("fig", count, ARGUMENTS)[2] == [1.0, 1.0]
    assert count.calls == [("a", 2)]
    assert path.read_text() == whole


@pytest.mark.parametrize("content", ["", "[]\n", '{"timely_pieces": "0.0.0"}\n', "\x00\x01"])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=r"c\.jsonl"):
        BenchCheckpoints(path)
    assert path.read_text() == content


def test_not_a_number_is_no_result() -> None:
    with pytest.raises(ValueError, match="JSON"):
        BenchCheckpoints().map("fig", lambda seed: float("nan"), [(1,)])


def test_a_result_of_other_code_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, counting = tmp_path / "p.jsonl", Counting()
    BenchCheckpoints(path).map("fig", counting, [("a", 1)])
    monkeypatch.setattr("timely.bench.checkpoints.benchmark_code_hash", lambda function: "other")
    again = BenchCheckpoints(path)
    again.map("fig", counting, [("a", 1)])
    again.map("fig", counting, [("a", 1)])
    assert counting.calls == [("a", 1)] * 2
    BenchCheckpoints(path).map("fig", counting, [("a", 1)])
    assert len(counting.calls) == 2


@pytest.mark.parametrize("name", ["trace.jsonl", "."])
def test_a_result_of_another_data_file_is_computed_again(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path, counting, argument = tmp_path / "p.jsonl", Counting(), str(data / name)
    for text in ("1\n", "2\n", "2\n"):
        (data / "trace.jsonl").write_text(text)
        benchmark_files_hash.cache_clear()  # as in another process
        BenchCheckpoints(path).map("fig", counting, [(argument, 1), ("pud", 1)])
    assert counting.calls == [(argument, 1), ("pud", 1), (argument, 1)]


@pytest.mark.parametrize("word", ["timely", "x" * 300, "a\0b"])
def test_a_word_that_is_no_path_names_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """Each run from a clone writes byte code into the folder ``timely``, which is no reason to repeat a discipline."""
    monkeypatch.chdir(tmp_path)
    counting = Counting()
    for name in "ab":
        (tmp_path / "timely").mkdir(exist_ok=True)
        (tmp_path / "timely" / name).touch()
        benchmark_files_hash.cache_clear()
        BenchCheckpoints(tmp_path / "p.jsonl").map("fig", counting, [(word, 1)])
    assert counting.calls == [(word, 1)]


def test_the_code_hash_ignores_comments_and_docstrings(tmp_path: Path) -> None:
    plain, commented, changed = (tmp_path / f"{name}.py" for name in "abc")
    plain.write_text("def f(x):\n    return x\n")
    commented.write_text('"""Doc."""\n# why\ndef f(x):\n    """Doc."""\n    return x\n')
    changed.write_text("def f(x):\n    return x + 1\n")
    assert (
        _bench_code_without_comments(plain)
        == _bench_code_without_comments(commented)
        != _bench_code_without_comments(changed)
    )


def test_the_code_hash_covers_disciplines_simulator_and_workloads() -> None:
    files = {str(path.resolve().relative_to(ROOT.parent)) for path in _shared_bench_code_files()}
    for part in (
        "timely/disciplines/timelyllm/pud.py",
        "timely/engines/sim/simulator.py",
        "timely/routing/routers.py",
        "timely/plans/validation.py",
        "timely/engines/step_time/profiles/rtx4090-llama3-8b.yaml",
        "lrtrace/compose/workload.py",
        "lrtrace/compose/tasks.yaml",
        "lrtrace/models.py",
        "lrtrace/plan_text.py",
        "robot_profiles/tello.yaml",
        "skills/drone.yaml",
    ):
        assert part in files
    assert not [name for name in files if name.startswith("lrtrace/cli/")]
    assert not [name for name in files if "/vllm/" in name]
