"""Scenes of images on vLLM's real scheduler: chunks, the encoder's budget and its cache."""

from __future__ import annotations

from typing import Any

import pytest
from optional_packages import require_package
from vllm_scheduler import Scene

from timely.disciplines.base import EncoderInput

require_package("vllm")

pytestmark = [pytest.mark.engine]


def image_request(scene: Scene, request_id: str, prompt_tokens: int, begin: int, length: int) -> Any:
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    request = scene.add(request_id, prompt_tokens, 4)
    feature = MultiModalFeatureSpec(
        data=None, modality="image", identifier=f"hash-{request_id}",
        mm_position=PlaceholderRange(offset=begin, length=length),
    )  # fmt: skip
    request.mm_features = [feature]
    return request


def with_encoder(scene: Scene, cache_tokens: int, chunked: bool = True) -> Scene:
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

    scene.scheduler.encoder_cache_manager = EncoderCacheManager(cache_size=cache_tokens)
    scene.scheduler.max_num_encoder_input_tokens = cache_tokens
    scene.scheduler.scheduler_config.disable_chunked_mm_input = not chunked
    return scene


@pytest.mark.parametrize("begin", [0, 16, 40])
def test_a_chunk_never_ends_inside_an_image_that_must_not_be_cut(begin: int) -> None:
    scene = with_encoder(Scene(budget=128, timely={"prefill_chunk": 32}), 200, chunked=False)
    image_request(scene, "image", 120, begin, 50)
    scene.run()
    computed = 0
    for step in scene.steps:
        computed += step.get("image", 0)
        assert not begin < computed < begin + 50, f"a chunk ends at {computed}"
    assert len(scene.outputs["image"]) == 4
    scene.check_empty()


def test_a_plan_that_cuts_an_image_computes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where less of its prompt is cached than was planned with."""
    scene = with_encoder(Scene(budget=128), 200, chunked=False)
    image_request(scene, "image", 120, 0, 50)
    controller = scene.scheduler.controller
    compose = controller.compose

    def cut(limits: Any) -> Any:
        plan = compose(limits)
        plan.tokens = {"image": 10}
        return plan

    monkeypatch.setattr(controller, "compose", cut)
    assert scene.step() == {"image": 50}


def test_an_image_that_must_not_be_cut_waits_for_room_in_a_step() -> None:
    scene = with_encoder(Scene(budget=64, max_num_seqs=32), 200, chunked=False)
    for number in range(16):
        scene.add(f"chat-{number}", 4, 10 + number)
    scene.step()
    image_request(scene, "image", 60, 0, 50)
    scene.run()
    first = next(step for step in scene.steps if "image" in step)
    assert first["image"] >= 50
    assert len(first) > 1, "beside chats, as soon as there is room"
    assert len(scene.outputs["image"]) == 4
    scene.check_empty()


def test_a_suspended_image_leaves_its_room_to_an_urgent_one() -> None:
    scene = with_encoder(Scene(budget=128, timely={"prefill_chunk": 32, "max_batch": 1}), 60)
    image_request(scene, "first", 120, 0, 60)
    scene.step()
    urgent = image_request(scene, "urgent", 60, 0, 60)
    scene.scheduler.controller.table.priority[scene.scheduler.live["urgent"].job.row] = -1.0
    assert urgent.has_encoder_inputs
    scene.run(until=lambda: "urgent" in scene.finished)
    assert "first" not in scene.finished
    assert all(scene.steps)
    scene.run()
    assert len(scene.outputs["first"]) == 4
    scene.check_empty()


@pytest.mark.parametrize("rest_tokens", [0, 1])
def test_an_image_counts_until_its_last_token_is_computed(rest_tokens: int) -> None:
    scene = with_encoder(Scene(budget=32), 200)
    tokens = 48 + rest_tokens
    image_request(scene, "image", 120, 16, tokens)
    encoder, job = scene.scheduler._room._encoder.limits, scene.scheduler.live["image"].job
    inputs = []
    for _ in range(3):
        inputs += encoder.inputs(job)
        scene.step()
    begins = [16, -16, -48][: 2 + rest_tokens]
    assert inputs == [
        EncoderInput(begin, begin + tokens, tokens, "hash-image", begin < 0) for begin in begins
    ]
