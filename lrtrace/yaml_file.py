"""Reads YAML as plain values with the line of every key, so that errors can name the line."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from lrtrace.errors import BadInput

MAX_BYTES = 4_000_000
"""Largest file. A profile has a few kilobytes."""

MAX_DEPTH = 40

MAX_VALUES = 100_000
"""Most values of a file, since aliases can multiply a small file without end."""

PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
"""Dates have their own constructor: a library that vLLM loads makes PyYAML read dates as text."""

Loc = tuple[str | int, ...]

REASONS = {"missing": "is missing", "model_type": "must be a mapping"}
"""Instead of pydantic's own, by the type of its error: they are for programmers."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A parsed file: its value, and the line of every location, from 1."""

    path: Path
    value: Any
    lines: dict[Loc, int]

    def line(self, loc: Sequence[str | int]) -> int | None:
        """Line of ``loc`` or of its nearest ancestor in the file; None if its first key is absent."""
        for end in range(len(loc), 0, -1):
            if (line := self.lines.get(tuple(loc[:end]))) is not None:
                return line
        return None

    def where(self, loc: Sequence[str | int]) -> str:
        return f"{self.path}:{self.line(loc) or 1}"

    def validate(self, model: type[Model]) -> Model:
        """The content as a model. Raises BadInput of the first problem: file, line, field and reason."""
        try:
            return model.model_validate(self.value)
        except ValidationError as error:
            raise first_yaml_problem(error, [self]) from error


def first_yaml_problem(error: ValidationError, files: Sequence[YamlFile]) -> BadInput:
    """The first problem of values in some files, of which an earlier one has precedence."""
    problem = error.errors(include_url=False)[0]
    # The tag of a union ('linear') appears in pydantic's location but is no key of a file.
    loc: Loc = ()
    for part in problem["loc"]:
        if any((*loc, part) in file.lines for file in files):
            loc = (*loc, part)
    if problem["type"] == "missing":
        loc = (*loc, problem["loc"][-1])
    reason = REASONS.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    file = next((file for file in files if file.line(loc) is not None), files[0])
    return BadInput(": ".join(filter(None, (".".join(map(str, loc)), reason))), where=file.where(loc))


def read_lrtrace_yaml(path: Path) -> YamlFile:
    """Parse a YAML file as ``read_plain_yaml``; raises BadInput also for one that holds no mapping."""
    file = read_plain_yaml(path)
    if not isinstance(file.value, dict):
        raise BadInput("expected a mapping of fields", where=f"{path}:1")
    return file


def read_plain_yaml(path: Path) -> YamlFile:
    """Parse a YAML file (safe tags only, no duplicate keys). The value of an empty one is None.

    Raises:
        BadInput: unreadable, too large, too deep, not YAML, or a duplicate key; names file and line.
    """
    try:
        stat = path.stat()
        if not S_ISREG(stat.st_mode):
            raise BadInput("not a regular file", where=str(path))
        if stat.st_size > MAX_BYTES:
            raise BadInput(f"too large: {stat.st_size} bytes, limit {MAX_BYTES}", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot read it: {error.strerror or error}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise BadInput("not UTF-8 text", where=str(path)) from error
    return _parse_lrtrace_yaml(text, str(path))


@lru_cache(maxsize=128)
def _parse_lrtrace_yaml(text: str, name: str) -> YamlFile:
    """Parse once per content, since a server needs the same profiles often.

    The key is the content, not the time stamp: a file can change within one clock tick and keep its size.
    """
    loader_type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader = loader_type(text)
    try:
        _check_lrtrace_yaml_depth(text, loader_type, name)
        node = loader.get_single_node()
        builder = _YamlValueBuilder(loader, name)
        value = builder.build(node) if node is not None else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark is not None else name
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise BadInput(f"not valid YAML: {reason}", where=where) from error
    finally:
        loader.dispose()
    return YamlFile(Path(name), value, builder.lines)


def _check_lrtrace_yaml_depth(text: str, loader_type: Any, name: str) -> None:
    """Refuse deep nesting before the library composes nodes, which it does by recursion: it would end the process."""
    depth = 0
    for event in yaml.parse(text, loader_type):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH + 1:
                mark = event.start_mark
                where = name if mark is None else f"{name}:{mark.line + 1}"
                raise BadInput(f"nested deeper than {MAX_DEPTH} levels", where=where)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _YamlValueBuilder:
    """Builds plain Python values from a node tree, with their lines."""

    def __init__(self, loader: Any, name: str) -> None:
        self.loader = loader
        self.name = name
        self.lines: dict[Loc, int] = {}

    def build(self, node: yaml.Node, loc: Loc = ()) -> Any:
        """The value of a node. Depth and number of values are bounded, since aliases may nest or multiply."""
        where = f"{self.name}:{node.start_mark.line + 1}"
        if len(loc) > MAX_DEPTH:
            raise BadInput(f"nested deeper than {MAX_DEPTH} levels", where=where)
        if len(self.lines) > MAX_VALUES:
            raise BadInput(f"more than {MAX_VALUES} values", where=where)
        self.lines.setdefault(loc, node.start_mark.line + 1)
        if not isinstance(node, yaml.ScalarNode) and node.tag not in PLAIN_TAGS:
            raise BadInput(f"tag {node.tag} is not plain data", where=where)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*loc, index)) for index, item in enumerate(node.value)]
        try:
            if node.tag == TIMESTAMP_TAG:
                return self.loader.construct_yaml_timestamp(node)
            return self.loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, OverflowError) as error:
            # The library takes the text of a tagged value for granted.
            raise BadInput(f"not a value: {error}", where=where) from error

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise BadInput("a key must be a plain word", where=f"{self.name}:{line}")
            # Keys stay text: a skill named 'on' must not become True.
            key = key_node.value
            if key in result:
                raise BadInput(f"{key!r} is given twice", where=f"{self.name}:{line}")
            self.lines[(*loc, key)] = line
            result[key] = self.build(value_node, (*loc, key))
        return result
