"""vLLM's own OpenAI-compatible app on a running engine."""

from types import SimpleNamespace
from typing import Any

from timely.core.errors import Unsupported
from timely.core.json_log import unchanged_root_logger
from timely.core.repeat_limit import LogRepeatLimit, limit_log_repeats

GENERATION_PATHS = ("/v1/completions", "/v1/chat/completions")

FRONT_END = ("vllm.entrypoints", "vllm.renderers", "vllm.tool_parsers", "vllm.reasoning", "vllm.parser")
"""vLLM's packages that read requests and write answers."""

REQUEST_MESSAGES = LogRepeatLimit()


async def build_vllm_openai_app(llm: Any, args: Any) -> Any:
    """vLLM's app for this engine, an ASGI application with every field that vLLM takes.

    Args:
        llm: a running ``AsyncLLM``.
        args: vLLM's parsed command line.

    Raises:
        Unsupported: the model is one for embeddings or other tasks than generating.
    """
    tasks = await llm.get_supported_tasks()
    if "generate" not in tasks:
        raise Unsupported(
            f"the model generates no text; vLLM runs it for: {', '.join(tasks)}", where="--model"
        )
    # A library of one of vLLM's routes hides all warnings of the process, ours too.
    with unchanged_root_logger():
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state
        from vllm.entrypoints.launchers.app import build_app

        app = build_app(args, tasks, llm.model_config)
    # Starlette tries the routes in order, and vLLM's metrics do it again; vLLM has about twenty before these.
    app.router.routes.sort(key=lambda route: getattr(route, "path", None) not in GENERATION_PATHS)
    await init_app_state(llm, app.state, args, tasks)
    # vLLM logs an error for each request that names an unknown model, and for others that clients may repeat.
    limit_log_repeats(FRONT_END, REQUEST_MESSAGES)
    # After an engine error vLLM's handler sets this flag of its own server. Timely's server goes on.
    app.state.server = SimpleNamespace(should_exit=False)
    return app
