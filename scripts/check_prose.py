"""Checks the prose and the names of this repository; CONTRIBUTING.md gives the rules.

    python scripts/check_prose.py [PATH ...]     one line for each finding, and exit status 1 if there is any

Prose is Markdown, docstrings, comments, error messages and help texts. A sentence has at most ``MAX_WORDS`` words and
names its subject; a line of Markdown holds one sentence. A name is no participle and no riddle.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_WORDS = 25
NAMES = {
    *("found", "known", "told", "missing", "given", "wanted", "asked", "dressed"),
    *("herald", "turnstile", "mission", "wakeful", "lifeline", "eyes"),
}
"""Names of variables, functions and parameters that say nothing of what they hold."""
PARTICIPLES = {
    *("added", "begun", "chosen", "drafted", "drawn", "gone", "heard", "held", "joined", "judged", "kept"),
    *("learned", "listed", "made", "needed", "owed", "removed", "said", "seen", "sent", "shown", "spent"),
    *("taken", "watched", "woken", "written"),
    *("audited", "checked", "generated", "hurried", "labelled", "limited", "moved", "predicted", "queued"),
    *("replanned", "saved", "settled", "torn", "unfinished", "valued"),
}
"""Participles that stand for a thing. Only tests may use them as names."""
EXCEPTIONS = {
    # A hook of the queue disciplines, named after its event as all hooks are.
    "heap_queue.py": {"begun"},
    "vtc.py": {"begun"},
    # A field of the results of ``timely bench faults``.
    "campaign.py": {"held"},
    "tally.py": {"held"},
}
"""File name -> participles that it may use."""
SUBJECTS = re.compile(
    r"(?:Who|Whoever|Nobody|Everybody|Everyone|Anybody|No one|One who|All but)\b(?! Framework)"
)
PICTURES = re.compile(
    r"\b(?:herald|turnstile|uninvited|rid(?:e|es|ing) along|rides? along|ride-along|at the door|behind its back)\b",
    re.I,
)
CODE = re.compile(r"``[^`]*``|`[^`]*`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]?\s+(?=[A-Z`(\"*])")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|Fig|Eq|Sec|Alg|Tab|al|approx|No)\.$")
COMMENT_OR_STRING = re.compile(
    r"""(?s)(#[^\n]*)|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
)
"""Strings are matched, so that a ``#`` in them is no comment. The module ``tokenize`` takes a third of a run."""
FUNCTIONS_AND_CLASSES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SECTIONS = re.compile(r"^(Args|Returns|Raises|Attributes|Yields|Note|Example):?\s*$")


def sentences(text: str) -> list[str]:
    """The sentences of a paragraph; code counts as one word."""
    plain = " ".join(LINK.sub(r"\1", CODE.sub("`x`", text)).split())
    parts: list[str] = []
    for part in SENTENCE_END.split(plain):
        if parts and ABBREVIATION.search(parts[-1]):
            parts[-1] += " " + part
        elif part:
            parts.append(part)
    return parts


def words(sentence: str) -> int:
    """How many words; a colon or a semicolon does not end a sentence."""
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def judge(paragraph: str) -> Iterator[str]:
    """What is wrong with a paragraph."""
    for sentence in sentences(paragraph):
        count = words(sentence)
        if count > MAX_WORDS:
            yield f"{count} words: {sentence[:90]}"
        if SUBJECTS.match(sentence):
            yield f"subject without a name: {sentence[:90]}"
        for match in PICTURES.finditer(sentence):
            yield f"private word {match.group()!r}: {sentence[:90]}"


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Findings in a Markdown file; code blocks, tables and HTML are left out."""
    in_code = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("```"):
            in_code = not in_code
        if in_code or not line or line.startswith(("```", "|", "<", "#", "[")):
            continue
        line = re.sub(r"^(?:[-*+>]|\d+\.)\s+", "", line)
        if len(sentences(line)) > 1:
            yield number, f"{len(sentences(line))} sentences in one line: {line[:70]}"
        for finding in judge(line):
            yield number, finding


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs of a docstring with their first lines; lists item by item, literal blocks left out."""
    block: list[str] = []
    start, literal = 0, False
    for number, raw in enumerate([*text.splitlines(), ""]):
        line = raw.strip()
        is_indented = raw.startswith("    ") and literal
        new_item = re.match(r"(?:[-*]|\w[\w, ]*:)\s", line)
        if not line or is_indented or new_item or SECTIONS.match(line) or line.startswith(("{", "|", ">>>")):
            if block:
                yield start, " ".join(block)
                literal = literal or block[-1].endswith("::")
            block = []
        if line and not is_indented:
            literal = False if not raw.startswith(" ") and not line.endswith("::") else literal
            if not SECTIONS.match(line) and not line.startswith(("{", "|", ">>>")):
                start = start if block else number
                block.append(line)


def python(text: str, bad_names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Findings in a Python file: docstrings, comments, messages and names."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            for offset, paragraph in paragraphs(node.value.value):
                for finding in judge(paragraph):
                    yield node.lineno + offset, finding
        for message in _messages(node):
            for finding in judge(message):
                yield getattr(node, "lineno", 0), finding
        yield from _names(node, bad_names)
    comments: list[tuple[int, str]] = []
    for match in COMMENT_OR_STRING.finditer(text):
        comment = match.group(1)
        if not comment or re.match(r"#\s*(noqa|type:|shellcheck|!|---)", comment):
            continue
        line = comment.lstrip("#").strip()
        number = text.count("\n", 0, match.start()) + 1
        own_line = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
        if comments and own_line and comments[-1][0] + comments[-1][1].count("\n") + 1 == number:
            comments[-1] = (comments[-1][0], comments[-1][1] + "\n" + line)
        else:
            comments.append((number, line))
    for number, comment in comments:
        for finding in judge(comment):
            yield number, finding


def _messages(node: ast.AST) -> Iterator[str]:
    """The texts of an error that is raised, or of an option's help; a value in them counts as one word."""
    texts: list[ast.expr] = []
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        texts = node.exc.args
    elif isinstance(node, ast.Call):
        texts = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
    for text in texts:
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.value
        elif isinstance(text, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in text.values)


def _names(node: ast.AST, bad_names: Collection[str]) -> Iterator[tuple[int, str]]:
    name = ""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        name = node.id
    elif isinstance(node, FUNCTIONS_AND_CLASSES):
        name = node.name
    elif isinstance(node, ast.arg):
        name = node.arg
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        name = node.attr
    if name.strip("_") in bad_names:
        yield getattr(node, "lineno", 0), f"name {name!r} says nothing of what it holds"


def check(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        findings = markdown(text)
    else:
        participles = set() if "tests" in path.parts else PARTICIPLES - EXCEPTIONS.get(path.name, set())
        findings = python(text, NAMES | participles)
    return [f"{path}:{number}: {finding}" for number, finding in findings]


def main(arguments: list[str]) -> int:
    """Check the given files and folders, or everything that git tracks."""
    names = subprocess.run(
        ["git", "ls-files", "--", *arguments], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = [Path(name) for name in names if name.endswith((".md", ".py")) and Path(name).is_file()]
    with ProcessPoolExecutor() as pool:
        findings = [finding for part in pool.map(check, files, chunksize=20) for finding in part]
    print("\n".join(findings) if findings else f"prose: {len(files)} files, nothing to say", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
