"""Parses plans, whole or segment by segment, into the syntax tree of ``timely.plans.language.syntax``.

The language ``minispec`` is TypeFly's (arXiv 2312.14950), as TypeFly's and TimelyLLM's models write it::

    plan      = { statement [";"] }
    statement = call | variable "=" value | "->" [value] | number "{" plan "}"
              | "?" value "{" plan "}" { ":" "?" value "{" plan "}" } [ ":" "{" plan "}" ]
    call      = skill [ "(" [ value { "," value } ] ")" ]       the brackets may be left out without arguments
    value     = number | text | True | False | variable | call | value operator value | "(" value ")"
    operator  = | & == != < > <= >= + - * /                     loosest first; && and || are the same as & and |

The parser tolerates what models add without meaning: a ``->`` between condition and brace, a missing ``;`` after a
closing bracket, repeated ``;``. The language ``calls`` is flat: calls with literal arguments, separated by ``;``,
``->`` or nothing. A bare word is a text there.
"""

from collections.abc import Sequence
from typing import cast

from timely.core.errors import InvalidInput, UnknownName, Unsupported
from timely.plans.language.lexer import Token, lex_plan, plan_language_place, unquote_plan_text
from timely.plans.language.syntax import (
    Assign,
    Block,
    Branch,
    If,
    Loop,
    Operation,
    Operator,
    PlanCall,
    Program,
    Return,
    Role,
    Value,
    Variable,
)
from timely.plans.language.tree import PlanTree
from timely.plans.skill_set import SkillSet

MAX_NESTING = 12
MAX_OPERATIONS = 200
MAX_LOOP = 1000
MAX_PLAN_CHARS = 100_000

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("|", "||"),
    ("&", "&&"),
    ("==", "!=", "<", ">", "<=", ">="),
    ("+", "-"),
    ("*", "/"),
)
_LEVEL_OF = {operator: level for level, together in enumerate(_LEVELS) for operator in together}
_SAME = {"||": "|", "&&": "&"}


class SegmentParser(PlanTree):
    """Parses one plan as its segments arrive, each inside the blocks that are open.

    Args:
        fragment: the text may start inside blocks. Then ``}`` and ``:{`` may lack their opening brace.

    After an error the parser's state is undefined, and the plan is over.
    """

    def __init__(self, skill_set: SkillSet, *, fragment: bool = False) -> None:
        if skill_set.language == "text":
            raise Unsupported("prose is not parsed", where=f"skill set {skill_set.name}")
        self.skill_set = skill_set
        super().__init__(fragment=fragment)
        self.position = 0
        """Number of characters parsed so far."""

    def feed(self, segment: str) -> list[PlanCall]:
        """Parse the next segment; returns its calls in the order written, arguments before their call.

        Raises:
            InvalidInput: the segment does not parse; the message says what and where.
            UnknownName: a skill does not exist.
        """
        if self.position + len(segment) > MAX_PLAN_CHARS:
            raise InvalidInput(f"plan is longer than {MAX_PLAN_CHARS} characters", where="plan")
        self.just_closed = []
        reader = _PlanReader(self, segment, list(lex_plan(segment)))
        calls = reader.statements()
        self.position += len(segment)
        return calls


class _PlanReader:
    """Recursive descent over the tokens of one segment."""

    def __init__(self, parser: SegmentParser, text: str, token_list: Sequence[Token]) -> None:
        self.parser = parser
        self.text = text
        self.tokens = token_list
        self.next = 0
        self.nesting = 0
        self.operations = 0
        self.calls: list[PlanCall] = []
        self.blocks = parser.skill_set.language == "minispec"

    def error(self, message: str) -> InvalidInput:
        token = self.peek()
        at = token.at if token else len(self.text)
        where = plan_language_place(self.text, at)
        start = self.parser.position
        return InvalidInput(
            message, where=f"{where}, in the segment from character {start}" if start else where
        )

    def peek(self) -> Token | None:
        return self.tokens[self.next] if self.next < len(self.tokens) else None

    def sees(self, *symbols: str) -> bool:
        token = self.peek()
        return token is not None and token.text in symbols

    def takes(self, *symbols: str) -> bool:
        if self.sees(*symbols):
            self.next += 1
            return True
        return False

    def needs(self, symbol: str, after: str) -> None:
        if not self.takes(symbol):
            raise self.error(f"expected {symbol!r} after {after}")

    def statements(self) -> list[PlanCall]:
        parser = self.parser
        separators = (";",) if self.blocks else (";", "->")
        while (token := self.peek()) is not None:
            if token.kind == "name":
                parser.add(self.call("statement"))
                self.end_of_statement()
            elif self.takes(*separators):
                parser.end_conditional()
            elif self.blocks and self.takes("}"):
                if not parser.pop():
                    self.next -= 1
                    raise self.error("closing brace without a block")
            elif self.blocks and self.takes(":"):
                self.branch()
            elif self.blocks and self.takes("?"):
                condition = self.condition()
                conditional = If([Branch(condition, Block())])
                parser.add(conditional)
                parser.push(conditional.branches[0].body, conditional)
            elif self.blocks and self.takes("->"):
                self.returns()
            elif self.blocks and token.kind == "number":
                self.loop()
            elif self.blocks and token.kind == "variable":
                self.assign()
            else:
                raise self.error("expected a statement")
        return self.calls

    def end_of_statement(self) -> None:
        """A closing bracket ends a call. Any other statement needs a separator, a brace or the end."""
        previous = self.tokens[self.next - 1]
        if self.peek() is None or previous.text == ")" or self.sees(";", "}"):
            return
        if not self.blocks and self.sees("->"):
            return
        raise self.error("expected ';'")

    def condition(self) -> Value:
        value = self.value("condition")
        self.takes("->")
        self.needs("{", "a condition")
        return value

    def branch(self) -> None:
        condition = None
        if self.takes("?"):
            condition = self.condition()
        else:
            self.needs("{", "':'")
        if not self.parser.add_branch(condition):
            raise self.error("':' without a conditional before it")

    def loop(self) -> None:
        token = self.tokens[self.next]
        if not token.text.isdecimal() or not 1 <= int(token.text) <= MAX_LOOP:
            raise self.error(f"a loop runs 1 to {MAX_LOOP} times")
        self.next += 1
        self.needs("{", "a number")
        loop = Loop(int(token.text), Block())
        self.parser.add(loop)
        self.parser.push(loop.body, loop)

    def assign(self) -> None:
        name = self.tokens[self.next].text
        self.next += 1
        self.needs("=", "a variable")
        value = self.value("value")
        self.parser.add(Assign(name, value))
        self.parser.variables.add(name)
        self.end_of_statement()

    def returns(self) -> None:
        value = None
        if self.peek() is not None and not self.sees(";", "}"):
            value = self.value("value")
        self.parser.add(Return(value))
        self.end_of_statement()

    def value(self, role: Role, loosest: int = 0) -> Value:
        """Read a value whose operators bind at least as tightly as level ``loosest``."""
        left = self.primary(role)
        while (level := self.operator()) >= loosest:
            operator = self.tokens[self.next].text
            self.next += 1
            self.operations += 1
            if self.operations > MAX_OPERATIONS:
                raise self.error(f"more than {MAX_OPERATIONS} operators in one segment")
            self.parser.count_steps(1)
            op = cast(Operator, _SAME.get(operator, operator))
            left = Operation(op, left, self.value(role, level + 1))
        return left

    def operator(self) -> int:
        """The level of the next token as an operator; -1 if it is none."""
        token = self.peek()
        return _LEVEL_OF.get(token.text, -1) if token is not None else -1

    def primary(self, role: Role) -> Value:
        token = self.peek()
        if token is None:
            raise self.error("ends where a value should be")
        if token.kind == "name" and token.text not in ("True", "False"):
            return self.call(role)
        self.next += 1
        if token.kind == "number":
            return _parse_plan_number(token.text)
        if token.kind == "string":
            return unquote_plan_text(token.text)
        if token.kind == "variable":
            return self.variable(token)
        if token.kind == "name":
            return token.text == "True"
        if token.text == "-" and (number := self.peek()) is not None and number.kind == "number":
            self.next += 1
            return -_parse_plan_number(number.text)
        if token.text == "(":
            self.deeper()
            inside = self.value(role)
            self.needs(")", "a value in brackets")
            self.nesting -= 1
            return inside
        self.next -= 1
        raise self.error("expected a value")

    def variable(self, token: Token) -> Variable:
        if not self.parser.fragment and token.text not in self.parser.variables:
            self.next -= 1
            raise self.error(f"{token.text} has no value yet")
        return Variable(token.text)

    def call(self, role: Role) -> PlanCall:
        token = self.tokens[self.next]
        skill = self.parser.skill_set.find(token.text)
        if skill is None:
            words = (entry.word for entry in self.parser.skill_set.skills)
            raise UnknownName("skill", token.text, words, where=self.error("").where)
        self.next += 1
        args: list[Value] = []
        if self.takes("("):
            self.deeper()
            while not self.takes(")"):
                if args:
                    self.needs(",", "an argument")
                args.append(self.argument())
            self.nesting -= 1
        elif skill.arguments:
            raise self.error(f"expected '(' after {token.text}")
        end = self.tokens[self.next - 1].end
        call = PlanCall(
            skill.name,
            tuple(args),
            text=self.text[token.at : end],
            at=self.parser.position + token.at,
            depth=self.parser.depth,
            role=role,
        )
        self.calls.append(call)
        self.parser.count_call()
        return call

    def argument(self) -> Value:
        token = self.peek()
        if self.blocks or token is None or token.kind not in ("name", "variable"):
            return self.value("value")
        following = self.tokens[self.next + 1] if self.next + 1 < len(self.tokens) else None
        if token.text in ("True", "False") or (following is not None and following.text == "("):
            return self.value("value")
        # Models often write pick(red_box) in plans for robot arms.
        self.next += 1
        return token.text

    def deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise self.error(f"brackets nested deeper than {MAX_NESTING}")


def _parse_plan_number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def parse_plan(text: str, skill_set: SkillSet) -> Program:
    """Parse a whole plan.

    Raises:
        InvalidInput: it does not parse, or ends inside a block. UnknownName: a skill that does not exist.
        Unsupported: the skill set's language is ``text``.
    """
    parser = SegmentParser(skill_set)
    parser.feed(text)
    return parser.finish()


def parse_plan_calls(segment_text: str, skill_set: SkillSet) -> list[PlanCall]:
    """The calls of one segment, which may be a fragment of a block structure; none for prose.

    Raises:
        InvalidInput: it does not parse even as a fragment. UnknownName: a skill that does not exist.
    """
    if skill_set.language == "text":
        return []
    return SegmentParser(skill_set, fragment=True).feed(segment_text)
