"""Random plans of the skill sets ``drone`` and ``arm``, with the spaces and loose ends that models write."""

from __future__ import annotations

from hypothesis import strategies as st

CALLS = (
    *("mf(50)", "tc( 90 )", "tp", "tp()", "a", "g('cat')", 'g ("cat")', "mf\n(50)", "d(0.5)", "d(.5)"),
    *("l('a;b}{c')", "l('it\\'s')", "l('?)')", "l(p('what?'))", "mf((20))", "log('x')"),
)
CONDITIONS = (
    *("iv('a')", "s('b')==True", "ox('c')>0.3", "od('x')/2<50&iv('a')", "iv('a')|s('b')", "(iv('a'))"),
    *("True", "0>1", "p('w;')=='x'", "-1<ow('a')*2"),
)
VALUES = ("ox('c')", "sa('t')", "p('w?')", "5", "iv('a')", "True", "-3", "'t}'", "ox('c')*2")
SPACES = ("", "", "", "", " ", "\t", " \n", "\n")
MAX_DEPTH = 3

ARM_CALLS = (
    *("pick('a')", 'place( "b c" )', "home", "home()", "pick(red_box)", "pick(home)", "open", "take\n('a')"),
    *("move_to(look('t'))", "say('it\\'s; -> {')", "look('x')"),
)


@st.composite
def random_call_lists(draw: st.DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        call = draw(st.sampled_from(ARM_CALLS))
        ends = (";", "->", " -> ", ";;", "\n", "") if call.endswith(")") else (";", "->", " -> ", " ;")
        parts += [draw(st.sampled_from(SPACES)), call, draw(st.sampled_from(ends))]
    return "".join(parts)


@st.composite
def random_minispec_plans(draw: st.DrawFn) -> str:
    """A plan that parses as a whole, unless a break of a line ends one of its statements early."""
    return _block(draw, 0)


def _block(draw: st.DrawFn, depth: int) -> str:
    parts = []
    for _ in range(draw(st.integers(0 if depth else 1, 3))):
        statement = _statement(draw, depth)
        ends = (";", ";", ";;", "\n;", "") if statement.endswith((")", "}")) else (";", " ;", ";;")
        parts += [draw(st.sampled_from(SPACES)), statement, draw(st.sampled_from(ends))]
    return "".join(parts) + draw(st.sampled_from(SPACES))


def _statement(draw: st.DrawFn, depth: int) -> str:
    kind = draw(st.sampled_from(("call", "call", "call", "assign", "return", "loop", "if", "if")))
    if kind == "call" or depth >= MAX_DEPTH:
        return draw(st.sampled_from(CALLS))
    if kind == "assign":
        return f"_1={draw(st.sampled_from(VALUES))}"
    if kind == "return":
        return f"->{draw(st.sampled_from((*VALUES, '')))}"
    if kind == "loop":
        return f"{draw(st.sampled_from('1234'))}{draw(st.sampled_from(SPACES))}{{{_block(draw, depth + 1)}}}"
    arms = [f"?{_arm(draw, depth)}"]
    arms += [f":?{_arm(draw, depth)}" for _ in range(draw(st.integers(0, 1)))]
    if draw(st.booleans()):
        arms.append(f":{{{_block(draw, depth + 1)}}}")
    return draw(st.sampled_from(SPACES)).join(arms)


def _arm(draw: st.DrawFn, depth: int) -> str:
    arrow = draw(st.sampled_from(("", "", "->")))
    return f"{draw(st.sampled_from(CONDITIONS))}{arrow}{{{_block(draw, depth + 1)}}}"
