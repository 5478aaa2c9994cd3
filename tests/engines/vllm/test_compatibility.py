"""A vLLM with other parts: its own scheduler starts as ever, and ours says in one line why it does not."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from timely.core.errors import EngineFailed, InvalidInput
from timely.engines.vllm.compatibility import check_vllm
from timely.engines.vllm.plugin import register_vllm_plugin

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LOOP_PARTS = ("run_busy_loop", "_handle_shutdown", "_notify_idle_state_callbacks", "_pause_complete")


@pytest.fixture
def core() -> Any:
    """vLLM's module of the engine's core, with the plugin loaded."""
    from vllm.v1.engine import core

    register_vllm_plugin()
    return core


@pytest.fixture
def unplugged_core(core: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The same as it is before plugins are loaded; afterwards as it was."""
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.engine.output_processor import RequestState
    from vllm.v1.metrics.loggers import PrometheusStatLogger
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    monkeypatch.delattr(core.EngineCore, "timely_control")
    for owner, names in (
        (core.EngineCoreProc, LOOP_PARTS),
        (core.DPEngineCoreProc, ("run_busy_loop",)),
        (RequestState, ("make_request_output",)),
        (InputProcessor, ("__init__", "process_inputs")),
        (WorkerWrapperBase, ("init_device",)),
        (PrometheusStatLogger, ("record",)),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, vars(owner)[name].__wrapped__)
    return core


@pytest.mark.usefixtures("core")
def test_this_vllm_has_all_parts() -> None:
    check_vllm()


def test_a_vllm_without_a_part_starts_with_its_own_scheduler(
    unplugged_core: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """vLLM calls plugins without a guard: an error here ended ``vllm serve`` for users of its own scheduler."""
    engine = unplugged_core.EngineCoreProc
    monkeypatch.delattr(engine, "_pause_complete")
    parts = dict(vars(engine))
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger="vllm.timely"):
        register_vllm_plugin()
    # The logger of vLLM, imported before, has pytest's handler already.
    (line,) = set(caplog.messages)
    assert "Timely's scheduler does not start" in line
    assert "_pause_complete" in line
    assert dict(vars(engine)) == parts, "no part of the additions is there"
    with pytest.raises(
        EngineFailed, match=r"^vllm: this vLLM \(.*\) has no EngineCoreProc\._pause_complete; supp"
    ):
        check_vllm()


@pytest.mark.usefixtures("unplugged_core")
def test_a_plugin_that_vllm_leaves_out_is_named() -> None:
    """Parked generations never went on, since nothing woke the engine for them."""
    with pytest.raises(EngineFailed, match=r"add timely to VLLM_PLUGINS"):
        check_vllm()


@pytest.mark.usefixtures("core")
@pytest.mark.parametrize("replacement", [None, lambda self: None], ids=["absent", "other parameters"])
def test_a_changed_part_is_named(replacement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    monkeypatch.setattr(KVCacheManager, "get_blocks", replacement)
    with pytest.raises(EngineFailed, match=r"has no KVCacheManager\.get_blocks"):
        check_vllm()


@pytest.mark.parametrize(
    ("variable", "options", "says"),
    [
        ("TIMELY_DISCIPLINE", {}, r"^TIMELY_DISCIPLINE: unknown discipline 'nosuch'; known: .*timely"),
        ("TIMELY_MODE", {}, r"^TIMELY_MODE: Input should be 'segmented', 'stream' or 'whole'"),
        (
            "",
            {"discipline": "nosuch"},
            r"^additional_config\.timely\.discipline: unknown discipline 'nosuch'",
        ),
        ("", {"disciplin": "edf"}, r"^additional_config\.timely\.disciplin: "),
    ],
)
def test_wrong_options_are_named_before_a_model_loads(
    variable: str, options: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The front-end of vLLM refuses them; its engine's process did so after a minute, without the variable."""
    from timely.engines.vllm.plugin import SCHEDULER, _before_vllm_requests

    if variable:
        monkeypatch.setenv(variable, "nosuch")
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(scheduler_cls=SCHEDULER), additional_config={"timely": options}
    )
    front_end = SimpleNamespace(vllm_config=config)
    start = _before_vllm_requests(lambda self: None)
    with pytest.raises(InvalidInput, match=says):
        start(front_end)
    config.scheduler_config.scheduler_cls = None
    start(front_end)  # vLLM's own scheduler has no such options
