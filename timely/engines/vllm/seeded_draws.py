"""Draws of seeded requests in vLLM's older model runner, inside its workers.

vLLM's newer runner makes each draw from seed and position. The older one keeps a generator a request, which each draw
advances: also that of a void token behind a blocking segment. After a restart it begins anew. Where a prompt is cut,
vLLM takes a draw back in a way that CPU generators do not have, which ends the engine.
"""

import zlib
from collections.abc import Mapping
from typing import Any


def draw_by_position(runner: Any) -> None:
    """Let plans draw from seed and position, and prompts that are cut draw nothing; all else draws as in vLLM.

    Args:
        runner: vLLM's model runner; one of another kind stays as it is.
    """
    if not hasattr(runner, "_bookkeeping_sync"):
        return
    sample, keep_books = runner._sample, runner._bookkeeping_sync
    held_generators: dict[int, Any] = {}

    def _sample(*arguments: Any) -> Any:
        batch = runner.input_batch
        for index, generator in list(batch.generators.items()):
            if runner.discard_request_mask.np[index]:
                held_generators[index] = batch.generators.pop(index)
                continue
            parameters = runner.requests[batch.req_ids[index]].sampling_params
            if _is_plan(parameters.extra_args or {}):
                position = int(runner.optimistic_seq_lens_cpu[index])
                # Generators of CPUs take 32 bits, and neighbours must not share draws.
                generator.manual_seed(zlib.crc32(f"{parameters.seed} {position}".encode()))
        return sample(*arguments)

    def _bookkeeping_sync(*arguments: Any, **keywords: Any) -> Any:
        try:
            return keep_books(*arguments, **keywords)
        finally:
            runner.input_batch.generators.update(held_generators)
            held_generators.clear()

    runner._sample, runner._bookkeeping_sync = _sample, _bookkeeping_sync


def _is_plan(extra_args: Mapping[str, Any]) -> bool:
    """Whether these are the arguments of a plan: chats may carry other hints of ours."""
    nested_fields = extra_args.get("timely") or {}
    return bool(
        nested_fields.get("skill_set") or nested_fields.get("forced") or extra_args.get("timely_skill_set")
    )
