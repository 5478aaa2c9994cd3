"""The checks of a request for the OpenAI endpoints: the limits and claims of a task hold for it too."""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from timely.core.errors import InvalidInput, NotAllowed, TooLarge
from timely.principals import Principal
from timely.server.http.bodies import validate_http_body
from timely.server.tasks.request import (
    MAX_PRIORITY,
    MAX_TOKENS,
    Label,
    Name,
    StrictBody,
    Tuf,
    Urgency,
    server_task_utility_from_wire,
    server_task_utility_to_wire,
)

KEY = "timely"
"""The field of a body that holds the scheduler's hints."""

XARGS_PREFIX = "timely"
TUF_FIELDS = ("ert_s", "alpha", "beta", "cutoff_s")

MAX_CHOICES = 8
"""Most generations of one request: choices times prompts."""

MAX_TEXT_CHARS = 2_000
"""Of a request's text for predictors; the rest is cut off."""

COMPILED_FIELDS = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")
"""Fields whose grammar the engine would compile beside the robots' generations."""

REFUSED_FIELDS = (
    "kv_transfer_params",
    "ec_transfer_params",
    "use_beam_search",
    "request_id",
    "prompt_embeds",
)
"""Fields that reach other requests, or multiply the work of one; as ``vllm_xargs`` too."""

MAX_ITEMS = {
    "stop": 64,
    "bad_words": 64,
    "logit_bias": 1_024,
    "stop_token_ids": 1_024,
    "logprob_token_ids": 1_024,
}
"""Most items of fields that the engine goes through at each token, while the robots' generations wait."""

MAX_PARTS = 8_192
"""Most fields and items of a body, beside token ids and the schemas of tools. vLLM checks them one by one, which takes
tens of microseconds for each, and robots wait for it, even in a thread: Python's lock is held."""

MAX_REPETITION = {"max_pattern_size": 32, "min_count": 8}
"""Most tokens of a pattern and most repeats that the engine looks for at each token."""

GRAMMARS_REFUSED = (
    "grammars of clients are not compiled beside the robots' generations; the operator may allow it"
    " (timely serve --client-grammars)"
)


class OpenAIHints(StrictBody):
    """What a client may say to the scheduler under ``timely``."""

    tuf: Tuf | None = None
    skill_set: Name | None = None
    robot: Name | None = None
    agent: Label | None = None
    app: Label | None = None
    app_requests: Annotated[int | None, Field(ge=1, le=10_000)] = None
    urgency: Urgency | None = None
    network_s: Annotated[float | None, Field(ge=0, le=10)] = None
    expected_tokens: Annotated[float | None, Field(gt=0, le=1e6)] = None
    pace_s: Annotated[float | None, Field(gt=0, le=60)] = None
    acceptance: Annotated[float | None, Field(ge=0, le=1)] = None
    priority: Annotated[float | None, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = None
    text: str | None = None


HINTS: TypeAdapter[OpenAIHints] = TypeAdapter(OpenAIHints)
NO_HINTS = OpenAIHints()


def check_openai_http_parts(data: object) -> None:
    """Check that the engine's own checks of a body take tens of milliseconds at most.

    Raises:
        TooLarge: too many parts. InvalidInput: no messages, for each of which the engine would list its errors.
    """
    parts, inner = 0, [data]
    while inner:
        value = inner.pop()
        items = [value[key] for key in value if key != "parameters"] if isinstance(value, dict) else value
        if not isinstance(items, list) or (value is items and all(type(item) is int for item in items)):
            continue
        parts += len(items)
        if parts > MAX_PARTS:
            raise TooLarge(f"more than {MAX_PARTS} fields and items beside token ids", where="body")
        inner += items
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list | None):
        raise InvalidInput("must be a list", where="messages")
    for index, message in enumerate(messages or ()):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidInput("must be an object with a role", where=f"messages.{index}")


def check_openai_http_fields(data: dict[str, Any], *, allow_grammars: bool = False) -> int:
    """Check the fields outside ``timely``; returns the number of generations that the request asks for.

    Args:
        allow_grammars: structured outputs, response formats, and tools that must be called.

    Raises:
        InvalidInput: a field that is not for clients. NotAllowed: a grammar. TooLarge: too many generations or tokens.
    """
    for name in REFUSED_FIELDS:
        if data.get(name):
            raise InvalidInput("not for clients", where=name)
    xargs = data.get("vllm_xargs")
    if xargs is not None and not isinstance(xargs, dict):
        raise InvalidInput("must be an object", where="vllm_xargs")
    for name in xargs or ():
        if name.startswith(XARGS_PREFIX):
            raise InvalidInput(
                f"belongs under {KEY!r} in the body, without the prefix", where=f"vllm_xargs.{name[:40]}"
            )
        if name in REFUSED_FIELDS:
            raise InvalidInput("not for clients", where=f"vllm_xargs.{name}")
    if not allow_grammars and (field := _openai_grammar_field(data)):
        raise NotAllowed(GRAMMARS_REFUSED, where=field)
    for name, limit in MAX_ITEMS.items():
        items = data.get(name)
        if isinstance(items, list | dict) and len(items) > limit:
            raise TooLarge(f"{len(items)} items; the limit is {limit}", where=name)
    repetition = data.get("repetition_detection")
    if not isinstance(repetition, dict):
        repetition = {}
    for name, limit in MAX_REPETITION.items():
        if _openai_integer(repetition, name) > limit:
            raise TooLarge(f"{repetition[name]}; the limit is {limit}", where=f"repetition_detection.{name}")
    for name in ("max_tokens", "max_completion_tokens"):
        if _openai_integer(data, name) > MAX_TOKENS:
            raise TooLarge(f"{data[name]}; the limit is {MAX_TOKENS}", where=name)
    prompt = data.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    choices = max(1, _openai_integer(data, "n"), _openai_integer(data, "best_of"))
    if choices * prompts > MAX_CHOICES:
        raise TooLarge(f"{choices * prompts} generations; the limit is {MAX_CHOICES}", where="n")
    return choices * prompts


def _openai_grammar_field(data: dict[str, Any]) -> str:
    """The field for which the engine would compile a grammar; empty without one."""
    for name in COMPILED_FIELDS:
        if data.get(name):
            return name
    response_format = data.get("response_format")
    if response_format is not None and (
        not isinstance(response_format, dict) or response_format.get("type") != "text"
    ):
        return "response_format"
    if data.get("tool_choice") not in (None, "none", "auto"):
        return "tool_choice"
    tools = data.get("tools")
    if isinstance(tools, list) and tools and data.get("tool_choice") != "none":
        functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
        if any(isinstance(function, dict) and function.get("strict") for function in functions):
            return "tools"
        if data.get("parallel_tool_calls") not in (None, True):
            return "parallel_tool_calls"
    return ""


def openai_http_hints(data: dict[str, Any], principal: Principal) -> dict[str, Any]:
    """The fields of ``timely``, with their claims reduced to the principal's limits.

    Raises:
        InvalidInput: names the first field that is wrong.
    """
    raw = data.get(KEY, {})
    if not isinstance(raw, dict):
        raise InvalidInput("must be an object", where=KEY)
    flat = {name: raw[name] for name in TUF_FIELDS if name in raw}
    fields = {name: value for name, value in raw.items() if name not in TUF_FIELDS}
    if flat:
        tuf_fields = fields.get("tuf") or {}
        if not isinstance(tuf_fields, dict):
            raise InvalidInput("must be an object beside fields of its own", where=f"{KEY}.tuf")
        fields["tuf"] = {**tuf_fields, **flat}
    try:
        hints = validate_http_body(HINTS, fields) if fields else NO_HINTS
    except InvalidInput as error:
        raise InvalidInput(error.message, where=f"{KEY}.{error.where}") from error
    claims = principal.claims
    result = hints.model_dump(exclude={"tuf"}, exclude_unset=True, exclude_none=True) if fields else {}
    if hints.tuf is not None:
        result["tuf"] = server_task_utility_to_wire(claims.utility(hints.tuf))
    elif principal.named:
        result["tuf"] = server_task_utility_to_wire(claims.utility(server_task_utility_from_wire("normal")))
    if hints.urgency is not None:
        result["urgency"] = claims.urgency(hints.urgency)
    if hints.priority is not None:
        result["priority"] = claims.priority(hints.priority)
    if hints.app is not None:
        result["app"] = principal.app(hints.app)
    return result


def openai_http_text(data: dict[str, Any]) -> str:
    """The text of a request for predictors: the last message of the user, or the prompt; may be empty."""
    messages = data.get("messages")
    if isinstance(messages, list):
        for message in reversed(messages):
            if isinstance(message, dict) and message.get("role") == "user":
                return _openai_content_text(message.get("content"))
        return ""
    prompt = data.get("prompt")
    return _openai_content_text(prompt[0] if isinstance(prompt, list) and prompt else prompt)


def _openai_content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return " ".join(text for text in texts if isinstance(text, str))


def _openai_integer(data: dict[str, Any], name: str) -> int:
    """An integer field of the body; 0 without one.

    Raises:
        InvalidInput: another type, which the engine might convert.
    """
    value = data.get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise InvalidInput("must be an integer, zero or more", where=name)
    return value
