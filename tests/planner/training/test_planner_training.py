"""Training on a tiny random model: packs compute what separate sequences would, resumed equals uninterrupted."""

from __future__ import annotations

import math
import shutil
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from timely.core.errors import InvalidInput
from timely.planner.cases.case import PlannerCase
from timely.planner.cases.generate import generate_cases
from timely.planner.training.packing import TrainingTokens, pack_training_examples, training_tokens
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import Example, SkillSet

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_pack_has_the_common_beginning_once() -> None:
    packed = pack_training_examples([TrainingTokens((1, 2, 3, 4), (9, 0)), TrainingTokens((1, 2, 5), (8, 0))])
    assert packed.ids == [1, 2, 3, 4, 9, 0, 5, 8, 0]
    assert packed.positions == [0, 1, 2, 3, 4, 5, 2, 3, 4]
    assert packed.spans == [2, 6, 9]
    assert [packed.ids[at] for at in packed.predicts] == [4, 9, 5, 8]
    assert packed.targets == [9, 0, 8, 0]


def test_one_example_alone_keeps_a_token_of_its_own() -> None:
    packed = pack_training_examples([TrainingTokens((1, 2, 3), (9, 0))])
    assert packed.spans == [2, 5]
    assert packed.targets == [9, 0]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 0.1 million parameters over bytes."""
    torch = pytest.importorskip("torch")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def cases(skill_set: str, count: int) -> list[PlannerCase]:
    return list(islice(generate_cases(skill_set, "train", 0), count))


@pytest.mark.process
def test_a_pack_computes_what_separate_sequences_would(base: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from timely.planner.training.packing import packed_training_inputs, register_training_attention

    tokenizer = AutoTokenizer.from_pretrained(base)
    skills = find_skill_set("arm")
    examples = []
    for case in cases("arm", 3):
        prompt = case.prompt(skills)
        examples.append(training_tokens(tokenizer, prompt.system, prompt.user, case.plan))
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    packing = AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, attn_implementation=register_training_attention()
    )
    packed = pack_training_examples(examples)
    with torch.no_grad():
        together = packing.model(**packed_training_inputs(packed, "cpu"), use_cache=False).last_hidden_state[
            0
        ][packed.predicts]
        alone = torch.cat(
            [
                plain.model(torch.tensor([example.prompt + example.plan])).last_hidden_state[0][
                    len(example.prompt) - 1 : -1
                ]
                for example in examples
            ]
        )
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.process
@pytest.mark.parametrize(
    "spans", [[4, 9], [3, 7, 8, 13], [0, 5, 9]], ids=["one", "three", "nothing in common"]
)
def test_the_gradient_of_a_pack_is_that_of_masked_attention(spans: list[int]) -> None:
    import torch

    from timely.planner.training.packing import packed_training_attention

    class Module:
        scaling = 0.3

    generator = torch.Generator().manual_seed(0)
    length, heads, groups, size = spans[-1], 2, 3, 4
    shapes = ((1, heads * groups, length, size), (1, heads, length, size), (1, heads, length, size))
    query, key, value = (
        torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True) for shape in shapes
    )
    # An example sees the common beginning and itself up to where it is.
    example = [sum(at >= start for start in spans) for at in range(length)]
    sees = torch.tensor(
        [[k <= q and example[k] in (0, example[q]) for k in range(length)] for q in range(length)]
    )
    scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * Module.scaling
    weights = scores.masked_fill(~sees, float("-inf")).softmax(-1)
    masked = (weights @ value.repeat_interleave(groups, 1)).transpose(1, 2)
    packed, _ = packed_training_attention(Module(), query, key, value, None, spans=spans)
    torch.testing.assert_close(packed, masked)
    towards = torch.randn(masked.shape, dtype=torch.float64, generator=generator)
    expected = torch.autograd.grad(masked, (query, key, value), towards)
    torch.testing.assert_close(torch.autograd.grad(packed, (query, key, value), towards), expected)


@pytest.mark.process
@pytest.mark.parametrize("constrained", [False, True])
def test_answers_together_are_those_of_one_by_one(base: Path, constrained: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from timely.planner import batch_decode
    from timely.plans.prompt_tokens import plan_prompt_encoder

    skills = find_skill_set("arm")
    answerer = batch_decode.PlannerAnswerer(base, None)
    answerer.model.float()  # in bfloat16 ties are common
    some = cases("arm", 5)
    together = answerer.plans(skills, some, examples=False, constrained=constrained)
    assert together == [
        answerer.plans(skills, [case], examples=False, constrained=constrained)[0] for case in some
    ]
    if constrained:
        return
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).float()
    for case, plan in zip(some, together, strict=True):
        prompt = case.prompt(skills)
        ids = torch.tensor([plan_prompt_encoder(answerer.tokenizer).encode(prompt.system, prompt.user)])
        made = plain.generate(
            ids,
            max_new_tokens=batch_decode.MAX_NEW_TOKENS,
            do_sample=False,
            attention_mask=torch.ones_like(ids),
        )
        assert answerer.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True) == plan


@pytest.mark.process
@pytest.mark.parametrize(("capability", "dtype"), [("AVX2", "float32"), ("AVX512", "bfloat16")])
def test_a_processor_trains_and_plans_in_the_type_that_it_is_fast_with(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: str, dtype: str
) -> None:
    import torch

    from timely.planner.batch_decode import PlannerAnswerer
    from timely.planner.training import lora
    from timely.planner.training.train import _load_training_model

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    model = _load_training_model(base, "cpu")
    assert model.dtype == getattr(torch, dtype)
    parameters = lora.attach_training_adapter(model, 4, 8, seed=0)
    for name, value in parameters.items():
        if ".lora_B." in name:
            torch.nn.init.uniform_(value, -0.1, 0.1)
    lora.save_trained_adapter(tmp_path, parameters, 4, 8)
    plain, merged = (PlannerAnswerer(base, adapter).model for adapter in (None, tmp_path))
    assert plain.dtype == merged.dtype == getattr(torch, dtype)
    changed = merged.lm_head.weight, merged.model.layers[0].mlp.up_proj.weight
    assert not torch.equal(changed[1], plain.model.layers[0].mlp.up_proj.weight)
    for weight in changed:  # those of the folder that is served, whatever computes with them
        assert torch.equal(weight, weight.bfloat16().to(weight.dtype))


@pytest.mark.process
def test_an_answer_ends_with_its_tokenizers_token_whatever_the_model_names(base: Path) -> None:
    """Behind the end of the grammar every token is allowed."""
    from timely.planner import batch_decode

    answerer = batch_decode.PlannerAnswerer(base, None)
    answerer.compile_grammar(find_skill_set("arm"))
    answerer.model.generation_config.eos_token_id = 5
    rules = answerer._compiler.compile_grammar('root ::= "a"')
    assert answerer._batch(None, [[1, 2, 3]], rules, [None]) == ["a"]


def run(
    base: Path,
    out: Path,
    steps: int,
    *,
    seed: int = 0,
    stop_at: int | None = None,
    rate: float = 1e-3,
    skills: SkillSet | None = None,
    start: Path | None = None,
) -> None:
    from timely.planner.training.train import TrainingSource, TrainOptions, train_planner

    class Stopped(Exception):
        pass

    def progress(done: Any) -> None:
        if done.step == stop_at:
            raise Stopped

    sources = [TrainingSource(skills or find_skill_set("arm"), generate_cases("arm", "train", seed))]
    options = TrainOptions(steps=steps, examples=(4,), rank=4, alpha=8, warmup=2, seed=seed, rate=rate)
    try:
        train_planner(base, sources, out, options, start=start, progress=progress)
    except Stopped:
        return


@pytest.mark.parametrize(
    "options",
    [
        {"rate": math.nan}, {"rate": math.inf}, {"rate": 0.0}, {"steps": 0}, {"device": "tpu"}, {"device": "cuda:"},
        {"threads": -1}, {"threads": 10**8}, {"examples": ()},
    ],
)  # fmt: skip
def test_impossible_options_are_refused_before_the_model_is_loaded(options: dict[str, Any]) -> None:
    from timely.planner.training.train import TrainOptions

    TrainOptions(examples=(4,), device="cuda:1", threads=0).check(1)
    with pytest.raises(InvalidInput):
        TrainOptions(**{"examples": (4,), **options}).check(1)


@pytest.mark.process
@pytest.mark.parametrize(
    ("device", "gpus", "is_there"),
    [
        ("cpu", 0, True),
        ("cuda", 0, False),
        ("cuda", 1, True),
        ("cuda:0", 1, True),
        ("cuda:1", 1, False),
        ("foo", 1, False),
    ],
)
def test_a_device_that_is_not_there_is_refused_in_one_line(
    device: str, gpus: int, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from timely.planner.training.checks import check_planner_device

    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with nullcontext() if is_there else pytest.raises(InvalidInput, match=r"^device: "):
        check_planner_device(device)


@pytest.mark.process
def test_broken_off_and_resumed_is_the_same_as_uninterrupted(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from timely.planner.model_card import WEIGHTS
    from timely.planner.training import train as training

    monkeypatch.setattr(training, "CHECKPOINT_STEPS", 3)
    run(base, tmp_path / "whole", 8)
    run(base, tmp_path / "parts", 8, stop_at=5)
    run(base, tmp_path / "parts", 8)
    run(base, tmp_path / "other", 8, seed=1)
    whole = (tmp_path / "whole" / WEIGHTS).read_bytes()
    assert (tmp_path / "parts" / WEIGHTS).read_bytes() == whole
    assert (tmp_path / "other" / WEIGHTS).read_bytes() != whole
    with pytest.raises(InvalidInput, match="other options"):
        run(base, tmp_path / "parts", 9)


@pytest.mark.process
def test_a_training_goes_on_only_with_the_same_examples_and_weights(base: Path, tmp_path: Path) -> None:
    """A user who adds examples and gives the same command again must not get the old adapter."""
    from safetensors.torch import load_file, save_file

    from timely.planner.model_card import WEIGHTS

    skills = find_skill_set("arm")
    example = Example(task="Wave.", plan="home();")
    more = skills.model_copy(update={"examples": (*skills.examples, example)})
    other_base = Path(shutil.copytree(base, tmp_path / "base"))
    weights = load_file(other_base / "model.safetensors")
    save_file({name: 2 * value for name, value in weights.items()}, other_base / "model.safetensors")
    start, moved = tmp_path / "start", tmp_path / "moved"
    run(base, start, 1)
    run(base, tmp_path / "out", 1, start=start)
    shutil.copytree(start, moved)
    run(base, tmp_path / "out", 1, start=moved)  # the same weights
    with pytest.raises(InvalidInput, match="other options"):
        run(base, tmp_path / "out", 1, start=start, skills=more)
    with pytest.raises(InvalidInput, match="other options"):
        run(other_base, tmp_path / "out", 1, start=start)
    (start / WEIGHTS).unlink()
    run(base, tmp_path / "again", 1, seed=5)
    shutil.copy(tmp_path / "again" / WEIGHTS, start)
    with pytest.raises(InvalidInput, match="other options"):
        run(base, tmp_path / "out", 1, start=start)


@pytest.mark.process
def test_an_adapter_learns_is_merged_and_answers(base: Path, tmp_path: Path) -> None:
    import torch
    import xgrammar
    from transformers import AutoModelForCausalLM

    from timely.planner.batch_decode import PlannerAnswerer
    from timely.planner.evaluate import judge_planner_plans
    from timely.planner.training import lora

    run(base, tmp_path, 40, rate=1e-2)
    losses = torch.load(tmp_path / "state.pt", weights_only=True)["losses"]
    assert losses[-1] < losses[0] - 0.3
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora.merge_lora_adapter(merged, tmp_path)
    lora.load_training_adapter(tmp_path, lora.attach_training_adapter(adapted, 4, 8, seed=5))
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, adapted(ids).logits, rtol=1e-3, atol=1e-3)
        assert not torch.allclose(merged(ids).logits, plain(ids).logits, atol=1e-2)
    skills = find_skill_set("arm")
    answerer = PlannerAnswerer(base, tmp_path)
    plans = answerer.plans(skills, cases("arm", 6), examples=False, constrained=True)
    for plan in plans:  # whatever the tiny model writes, under the grammar it is a plan, if perhaps cut off
        assert plan
        assert xgrammar.GrammarMatcher(answerer.compile_grammar(skills)).accept_string(plan)
    score = judge_planner_plans(
        "tiny", answerer, skills, cases("arm", 6), [case.plan for case in cases("arm", 6)]
    )
    assert score.success == score.valid == 1.0
    assert score.wrongly_refused == 0
    assert 0 < score.first_segment_tokens <= score.plan_tokens


@pytest.mark.process
def test_an_adapter_for_another_shape_is_refused(base: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    from timely.planner.training import lora

    run(base, tmp_path, 1)
    config = AutoConfig.from_pretrained(base)
    config.num_hidden_layers = 1
    other = AutoModelForCausalLM.from_config(config)
    with pytest.raises(InvalidInput, match="another base model"):
        lora.merge_lora_adapter(other, tmp_path)
    config_file = tmp_path / lora.CONFIG
    content = config_file.read_text()
    for old, new in (('"lora_alpha": 8', '"lora_alpha": NaN'), ('"r": 4', '"r": Infinity')):
        assert old in content
        config_file.write_text(content.replace(old, new))
        with pytest.raises(InvalidInput, match="no adapter"):
            lora.merge_lora_adapter(other, tmp_path)
    config_file.write_text(content)
    save_file({"x.lora_B.weight": torch.zeros(4)}, tmp_path / lora.WEIGHTS)
    with pytest.raises(InvalidInput, match="not of rank 4"):
        lora.merge_lora_adapter(other, tmp_path)
    (tmp_path / lora.WEIGHTS).write_bytes(b"torn")
    with pytest.raises(InvalidInput, match="no adapter"):
        lora.merge_lora_adapter(other, tmp_path)
    assert torch.is_grad_enabled()
