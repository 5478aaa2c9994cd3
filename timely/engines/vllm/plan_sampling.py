"""Sampling parameters of plans, whose grammar vLLM checks once."""

from typing import Any

from vllm import SamplingParams


class PlanSamplingParams(SamplingParams):  # type: ignore[misc]
    """As vLLM's; requests of one skill set share their ``structured_outputs``.

    vLLM parses the grammar of each request anew, in the server's event loop. That takes 8 ms for drones.
    """

    def _validate_structured_outputs(self, *arguments: Any) -> None:
        outputs = self.structured_outputs
        if outputs is None or outputs._backend is not None:
            return
        try:
            super()._validate_structured_outputs(*arguments)
        except BaseException:
            outputs._backend = None
            raise
