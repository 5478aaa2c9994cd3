"""Adapters as files: cards, hashes, corruption, other base models; the command line's one-line refusals."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path

import pytest

from timely.cli import main as shell
from timely.core.errors import InvalidInput
from timely.engines.vllm import model
from timely.planner.model_card import (
    CARD,
    SHIPPED_ADAPTER,
    WEIGHTS,
    PlannerCard,
    check_planner_base,
    planner_prompt_hash,
    read_planner_card,
    write_planner_card,
)
from timely.planner.training.weight_hashes import training_file_hash, training_weights_hash
from timely.plans.skill_library import find_skill_set

MAX_BYTES = 10_000_000


def write_weights(path: Path, tensors: dict[str, bytes], note: str = "") -> None:
    """A safetensors file, by hand."""
    header: dict[str, object] = {"__metadata__": {"note": note}}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    write_weights(folder / "model.safetensors", {"a": b"123", "b": b"4567"})
    return folder


@pytest.fixture
def adapter(tmp_path: Path, base: Path) -> Path:
    folder = tmp_path / "adapter"
    folder.mkdir()
    write_weights(folder / WEIGHTS, {"x": b"xyz"})
    card = PlannerCard(
        base_model="tiny", base_sha256=training_weights_hash(base), adapter_sha256=training_file_hash(folder / WEIGHTS),
        skill_sets={"drone": planner_prompt_hash(find_skill_set("drone"))}, seed=0, steps=1, examples_seen=2, loss=0.5,
    )  # fmt: skip
    write_planner_card(folder, card)
    return folder


def test_a_card_is_read_back(adapter: Path, base: Path) -> None:
    card = read_planner_card(adapter)
    assert card.skill_sets.keys() == {"drone"}
    check_planner_base(card, base, adapter)


def test_the_hash_of_a_model_is_that_of_its_tensors(base: Path) -> None:
    before = training_weights_hash(base)
    write_weights(base / "model.safetensors", {"b": b"4567", "a": b"123"}, note="written by another version")
    assert training_weights_hash(base) == before
    write_weights(base / "model.safetensors", {"b": b"4567", "a": b"124"})
    assert training_weights_hash(base) != before


def test_the_hash_of_weights_is_over_name_type_shape_and_bytes_of_each_tensor(tmp_path: Path) -> None:
    """Cards of planners hold it, so it must not change with how files are read."""
    write_weights(tmp_path / "model.safetensors", {"wide": b"abc", "none": b""}, "made by hand")
    digests = {
        "wide": hashlib.sha256(b"U8 [3]abc").hexdigest(),
        "none": hashlib.sha256(b"U8 [0]").hexdigest(),
    }
    whole = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    assert training_weights_hash(tmp_path) == whole


def test_an_adapter_for_another_base_model(adapter: Path, base: Path) -> None:
    write_weights(base / "model.safetensors", {"a": b"999"})
    with pytest.raises(InvalidInput, match="another base model"):
        model.vllm_model_with_planner(base, adapter)


def test_merged_models_of_planners_that_are_served_no_more_go(
    adapter: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes 270 MB, and each training of a planner makes another."""
    monkeypatch.setenv("TIMELY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        model, "_run_vllm_model_process", lambda arguments, what: (Path(arguments[-1]) / "x").write_text(what)
    )

    def serve(number: int) -> Path:
        (adapter / WEIGHTS).write_bytes(b"%d" % number)
        card = read_planner_card(adapter, weights=False)
        digest = training_file_hash(adapter / WEIGHTS)
        write_planner_card(adapter, card.model_copy(update={"adapter_sha256": digest}))
        folder = model.vllm_model_with_planner(base, adapter)
        os.utime(folder, (clock[0], clock[0]))
        clock[0] += 1
        return folder

    def end_processes(*others: Path) -> None:
        for folder in [folder for folder in model._holds if folder not in others]:
            os.close(model._holds.pop(folder))

    clock = [1000]
    folders = [serve(number) for number in range(model.KEPT_PLANNERS)]
    assert serve(0) == folders[0]
    assert all(folder.is_dir() for folder in folders)
    end_processes()
    newest = serve(99)
    assert [folder.is_dir() for folder in folders] == [True, False, *[True] * (len(folders) - 2)]
    for number in range(100, 101 + model.KEPT_PLANNERS):
        end_processes(newest)
        serve(number)
    assert newest.is_dir(), "its server is in service, and an engine that dies loads it again"
    end_processes()
    serve(200)
    assert not newest.is_dir()


def test_a_merged_model_is_that_of_the_present_card_and_scale(
    adapter: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of the card are those that plans may use, and the configuration scales the added weights."""
    monkeypatch.setenv("TIMELY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(model, "_run_vllm_model_process", lambda arguments, what: None)
    first = model.vllm_model_with_planner(base, adapter)
    card = read_planner_card(adapter)
    write_planner_card(adapter, card.model_copy(update={"scores": {"drone": {"success": 1.0}}}))
    assert model.vllm_model_with_planner(base, adapter) == first, "no need to merge again"
    write_planner_card(adapter, card.model_copy(update={"names": {"drone": ["bin"]}}))
    named = model.vllm_model_with_planner(base, adapter)
    assert read_planner_card(named, weights=False).names == {"drone": ["bin"]}
    (adapter / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 16}')
    assert model.vllm_model_with_planner(base, adapter) != named


def test_the_packaged_model_is_read_once_for_each_merged_one(
    adapter: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start serves the merged model, whose files it hashes; those of the packaged one would take another second."""
    version = "1.0"
    merges: list[list[str]] = []
    reads: list[str] = []

    def read_base(progress: object = None) -> Path:
        reads.append(version)
        return base

    monkeypatch.setenv("TIMELY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(model, "_run_vllm_model_process", lambda arguments, what: merges.append(arguments))
    monkeypatch.setattr(model, "_packaged_vllm_weights", lambda: (base / "model.gguf", version))
    monkeypatch.setattr(model, "default_vllm_model", read_base)
    first = model.resolve_vllm_model(planner=str(adapter))
    assert model.resolve_vllm_model(planner=str(adapter)) == first
    assert (len(merges), reads) == (1, ["1.0"])
    version = "1.1"
    write_weights(base / "model.safetensors", {"a": b"999"})
    with pytest.raises(InvalidInput, match="another base model"):
        model.resolve_vllm_model(planner=str(adapter))


@pytest.mark.parametrize("command", [["eval"], ["train", "--start"]])
def test_an_adapter_for_another_base_model_is_one_line(
    command: list[str], adapter: Path, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_weights(base / "model.safetensors", {"a": b"999"})
    option = [] if "--start" in command else ["--adapter"]
    arguments = ["planner", *command, *option, str(adapter), "--base", str(base), "--skill-set", "arm"]
    more = ["--cases", "1"] if command == ["eval"] else ["--out", str(adapter.parent / "out")]
    assert shell.run_timely_command([*arguments, *more]) == shell.BAD_INPUT
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "was made for another base model (tiny)" in output


@pytest.mark.parametrize("content", [b"", b"\x05\0\0\0\0\0\0\0hello", b"\xff" * 20])
def test_a_base_model_with_broken_weights(base: Path, content: bytes) -> None:
    (base / "model.safetensors").write_bytes(content)
    with pytest.raises(InvalidInput, match="corrupted"):
        training_weights_hash(base)


@pytest.mark.parametrize("command", [["info"], ["eval", "--adapter"]])
def test_a_corrupted_adapter_is_one_line(
    command: list[str], adapter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (adapter / WEIGHTS).write_bytes(b"half a file")
    assert shell.run_timely_command(["planner", *command, str(adapter)]) == shell.BAD_INPUT
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "is corrupted" in output
    assert WEIGHTS in output


@pytest.mark.parametrize("damage", ["{", "{}", '{"timely_planner": 1, "unknown": 2}'])
def test_a_broken_card_is_one_line(adapter: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    (adapter / CARD).write_text(damage)
    assert shell.run_timely_command(["planner", "info", str(adapter)]) == shell.BAD_INPUT
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "is no card" in output


def test_a_folder_without_a_planner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_timely_command(["planner", "info", str(tmp_path)]) == shell.BAD_INPUT
    assert "holds no planner" in capsys.readouterr().err


def test_info_says_what_it_is(adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "info.json"
    assert shell.run_timely_command(["planner", "info", str(adapter), "--json", str(result)]) == shell.OK
    assert "tiny" in capsys.readouterr().out
    output = json.loads(result.read_text())
    assert output["skill_sets"].keys() == {"drone"}
    assert output["stale"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "--skill-set", "chat"], "is prose"),
        (["train", "--skill-set", "nosuch"], "unknown skill set"),
        (["train", "--skill-set", "bare.yaml"], "has no examples"),
        (["train", "--start", "nowhere"], "holds no planner"),
        (["eval", "--ways", "magic"], "unknown way"),
        (["eval", "--adapter", "nowhere"], "holds no planner"),
        (["train", "--steps", "0"], "steps"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare.yaml").write_text("name: bare\nlanguage: calls\nskills:\n  - {name: go}\n")
    assert shell.run_timely_command(["planner", *arguments]) == shell.BAD_INPUT
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert says in output


def test_what_the_option_means(base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[tuple[Path | None, Path]] = []

    def note(base_folder: Path | None, adapter_folder: Path, *, progress: object = None) -> Path:
        merged.append((base_folder, adapter_folder))
        return base

    monkeypatch.setattr(model, "vllm_model_with_planner", note)
    monkeypatch.setattr(model, "default_vllm_model", lambda progress=None: base)
    assert model.resolve_vllm_model(None, planner="none") == base
    assert model.resolve_vllm_model(str(base)) == base
    assert merged == []
    model.resolve_vllm_model(None)
    model.resolve_vllm_model(str(base), planner=str(adapter))
    assert merged == [(None, SHIPPED_ADAPTER), (base, adapter)]
    with pytest.raises(InvalidInput, match="no such folder"):
        model.resolve_vllm_model(None, planner="nowhere")
    with pytest.raises(InvalidInput, match="into a model folder"):
        model.resolve_vllm_model("some/model", planner=str(adapter))


def test_the_shipped_adapter_is_whole_small_and_for_these_prompts() -> None:
    card = read_planner_card(SHIPPED_ADAPTER)
    assert (SHIPPED_ADAPTER / WEIGHTS).stat().st_size <= MAX_BYTES
    assert set(card.skill_sets) == {"drone", "arm"}
    for name, digest in card.skill_sets.items():
        assert planner_prompt_hash(find_skill_set(name)) == digest, (
            f"the prompt of {name} has changed since training"
        )
    assert card.names == {"drone": [], "arm": ["bin"]}
    for name, least in (("drone", 0.85), ("arm", 0.8)):
        served = card.scores[f"{name} adapter+grammar+names"]
        assert served["cases"] >= 192
        assert served["success"] >= least
        assert served["refused"] >= 0.9
