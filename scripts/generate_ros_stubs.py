"""Write what follows from the ROS 2 interface files: type stubs, and the error codes for code without ROS.

    .venv/bin/python scripts/generate_ros_stubs.py [--check]

Reads the .msg, .srv and .action files of ``timely_interfaces``. Writes ``ros2_ws/stubs/timely_interfaces/*.pyi`` for
mypy and ``timely_robots/error_codes.py``. ``--check`` writes nothing and fails if a file is out of date.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from generated_files import write_or_check

SOURCES = Path(__file__).resolve().parent.parent / "ros2_ws" / "src"
INTERFACES = SOURCES / "timely_interfaces"
STUBS = SOURCES.parent / "stubs" / "timely_interfaces"
CODES = SOURCES / "timely_robots" / "timely_robots" / "error_codes.py"

PYTHON_TYPES = {"bool": "bool", "string": "str", "byte": "bytes", "char": "int"} | {
    f"{kind}{bits}": python
    for kind, python, sizes in (("int", "int", (8, 16, 32, 64)), ("float", "float", (32, 64)))
    for bits in sizes
    for kind in ((kind, f"u{kind}") if kind == "int" else (kind,))
}
CONSTANT = re.compile(r"(\w+)\s+([A-Z]\w*)\s*=\s*(.+)")
FIELD = re.compile(r"([\w/]+)(\[[^\]]*\])?\s+([a-z]\w*)(?:\s+.+)?")
HEADER = "# Written by scripts/generate_ros_stubs.py from the interface files; do not edit."


@dataclass
class Part:
    """One message: of a .msg file, or one section of a .srv or .action file."""

    constants: list[tuple[str, str]] = field(default_factory=list)
    """(name, value as Python source)"""
    fields: list[tuple[str, str]] = field(default_factory=list)
    """(name, Python type)"""
    imports: set[tuple[str, str]] = field(default_factory=set)
    """(module, class) of the field types"""


def parse(text: str, package: str = "timely_interfaces") -> Part:
    """The constants and fields of one section.

    Raises:
        ValueError: a line is neither.
    """
    part = Part()
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        if constant := CONSTANT.fullmatch(line):
            kind, name, value = constant.groups()
            part.constants.append((name, repr(value) if kind == "string" else value))
        elif match := FIELD.fullmatch(line):
            kind, array, name = match.groups()
            python = PYTHON_TYPES.get(kind, "")
            if not python:
                owner, _, python = kind.rpartition("/")
                part.imports.add((f"{owner or package}.msg", python))
            part.fields.append((name, f"MutableSequence[{python}]" if array else python))
        else:
            raise ValueError(f"cannot read {raw!r}")
    return part


def class_lines(name: str, part: Part, indent: str = "") -> list[str]:
    lines = [f"{indent}class {name}:"]
    lines += [f"{indent}    {constant}: Final = {value}" for constant, value in part.constants]
    lines += [f"{indent}    {attribute}: {kind}" for attribute, kind in part.fields]
    arguments = "".join(f", {attribute}: {kind} = ..." for attribute, kind in part.fields)
    lines.append(f"{indent}    def __init__(self{', *' if arguments else ''}{arguments}) -> None: ...")
    return [
        *lines,
        f"{indent}    @classmethod",
        f"{indent}    def get_fields_and_field_types(cls) -> dict[str, str]: ...",
    ]


def module_text(kind: str, sections: tuple[str, ...]) -> str:
    """The stub module of all files of a kind: ``msg``, ``srv`` or ``action``."""
    body: list[str] = []
    imports: set[tuple[str, str]] = set()
    for file in sorted((INTERFACES / kind).glob(f"*.{kind}")):
        parts = [parse(text) for text in re.split(r"^---$", file.read_text(), flags=re.MULTILINE)]
        imports |= {entry for part in parts for entry in part.imports}
        if not sections:
            body += ["", *class_lines(file.stem, parts[0])]
            continue
        body += ["", f"class {file.stem}:"]
        for name, part in zip(sections, parts, strict=True):
            body += class_lines(name, part, "    ")
        if kind == "action":
            body.append("    Impl: Any")
    own = f"timely_interfaces.{kind}"
    typing = [name for name in ("Any", "Final") if any(name in line for line in body)]
    head = [HEADER]
    if any("MutableSequence" in line for line in body):
        head.append("from collections.abc import MutableSequence")
    head.append(f"from typing import {', '.join(typing)}" if typing else "")
    by_module: dict[str, list[str]] = {}
    for module, name in sorted(imports):
        if module != own:
            by_module.setdefault(module, []).append(name)
    head += [f"from {module} import {', '.join(names)}" for module, names in by_module.items()]
    return "\n".join(line for line in [*head, *body] if line) + "\n"


def codes_text() -> str:
    """``error_codes.py``: the codes of ErrorCode.msg as an enumeration."""
    constants = parse((INTERFACES / "msg" / "ErrorCode.msg").read_text()).constants
    lines = [
        '"""Error codes of segments and tasks, equal to those of timely_interfaces/msg/ErrorCode, without ROS.',
        "",
        "Written by scripts/generate_ros_stubs.py from ErrorCode.msg, which says what each means; do not edit.",
        '"""',
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ErrorCode(IntEnum):",
        '    """Why a task or a segment did not succeed."""',
        "",
        *(f"    {name} = {value}" for name, value in constants),
    ]
    return "\n".join(lines) + "\n"


def outputs() -> dict[Path, str]:
    """The text of every generated file."""
    kinds = {"msg": (), "srv": ("Request", "Response"), "action": ("Goal", "Result", "Feedback")}
    files = {STUBS / f"{kind}.pyi": module_text(kind, sections) for kind, sections in kinds.items()}
    return {STUBS / "__init__.pyi": f"{HEADER}\n", **files, CODES: codes_text()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; with ``--check`` 1 if one is out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    return write_or_check(__file__, outputs(), check=parser.parse_args(arguments).check)


if __name__ == "__main__":
    sys.exit(main())
