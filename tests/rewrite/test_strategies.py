"""Strategies: what each does, where it tries, and when it stops."""

from __future__ import annotations

from typing import Any

import pytest
from rewrite_programs import body_text, program

from tilewright.ir.nodes import Alias, Apply, Body
from tilewright.rewrite.rule import (
    Declined,
    Place,
    RewriteError,
    Rule,
    Site,
    no_match,
    resolve,
    rule,
    rule_named,
    rules_of,
)
from tilewright.rewrite.strategy import (
    State,
    Strategy,
    apply,
    bottom_up,
    choice,
    each,
    everywhere,
    first_of,
    repeat,
    run_strategy,
    sequence,
    sites,
    top_down,
    try_,
)


@rule("test", Apply)
def add_to_mul(at: Place) -> Body | Declined:
    """x + y  =>  x * y"""
    operation = at.expect(Apply)
    if operation.operator != "add":
        return Declined(f"{operation.operator} is not add")
    return at.become(Apply("mul", operation.operands))


@rule("test", Apply)
def mul_to_add(at: Place) -> Body | Declined:
    """x * y  =>  x + y"""
    operation = at.expect(Apply)
    if operation.operator != "mul":
        return no_match(f"{operation.operator} is not mul")
    return at.become(Apply("add", operation.operands))


MUL, ADD = apply(add_to_mul), apply(mul_to_add)
SOURCE = program(
    "a: [n]i32, b: i32",
    """\
    let (x: [n]i32) = map n (\\(p: i32) ->
      let (q: i32) = p + b
      let (r: i32) = q + q
      in (r)) a
    let (y: i32) = b + b
    in (x, y)""",
)


def _operators(strategy: Strategy) -> str:
    outcome = strategy(State(SOURCE))
    if isinstance(outcome, Declined):
        return outcome.reason
    text = body_text(outcome.program)
    return "".join(one for one in text if one in "+*")


def test_where_strategies_try() -> None:
    assert _operators(top_down(MUL)) == "*++"
    assert _operators(bottom_up(MUL)) == "*++"
    assert _operators(everywhere(MUL)) == "***"
    assert _operators(everywhere(MUL, backwards=True)) == "***"
    order = [str(site) for site in sites(SOURCE)]
    assert order == ["0", "0.0/0", "0.0/1", "1"]
    assert [str(site) for site in sites(SOURCE, inner_first=True)] == ["0.0/0", "0.0/1", "0", "1"]


def test_combinations() -> None:
    assert _operators(sequence(top_down(MUL), top_down(MUL))) == "**+"
    assert _operators(sequence(top_down(MUL), top_down(ADD))) == "+++"
    assert _operators(top_down(sequence(MUL, ADD, MUL))) == "*++"
    assert _operators(top_down(sequence(MUL, MUL))) == "it fires at no statement"
    assert _operators(top_down(choice(ADD, MUL))) == "*++"
    assert _operators(top_down(first_of((mul_to_add, add_to_mul)))) == "*++"
    assert _operators(each(top_down(ADD), top_down(MUL))) == "*++"
    assert _operators(each(top_down(ADD), top_down(ADD))) == "it fires at no statement"
    assert _operators(try_(top_down(ADD))) == "+++"
    assert _operators(sequence(try_(top_down(ADD)), top_down(MUL))) == "*++"
    assert _operators(repeat(top_down(MUL))) == "***"
    assert _operators(repeat(top_down(ADD))) == "+++"


def test_choice_gives_every_reason() -> None:
    place = State(SOURCE, Site((), 1))
    outcome = choice(ADD, ADD, apply(rule_named("copy_propagation")))(place)
    assert isinstance(outcome, Declined)
    assert outcome.reason == "add is not mul; no rule is for Apply"


def test_an_endless_strategy_is_stopped() -> None:
    with pytest.raises(RewriteError, match=r"still fires after 10 times; its last steps: .*add_to_mul, mul_to_add"):
        repeat(top_down(choice(MUL, ADD)), limit=10)(State(SOURCE))
    with pytest.raises(RewriteError, match=r"fired 25 times in one sweep; its last steps: .*add_to_mul, mul_to_add"):
        everywhere(choice(MUL, ADD), limit=25)(State(SOURCE))
    with pytest.raises(RewriteError, match="fired 1400 times in one sweep"):  # the program has four statements
        everywhere(choice(MUL, ADD))(State(SOURCE))


def test_steps_and_refusals_are_recorded() -> None:
    state = run_strategy(SOURCE, repeat(everywhere(MUL)))
    assert [(step.rule, str(step.site)) for step in state.steps] == [
        ("add_to_mul", "0.0/0"),
        ("add_to_mul", "0.0/1"),
        ("add_to_mul", "1"),
    ]
    assert state.steps[0].before is SOURCE
    assert state.steps[-1].after is state.program
    assert [str(one) for one in state.refusals] == [
        "add_to_mul at q: mul is not add",
        "add_to_mul at r: mul is not add",
        "add_to_mul at y: mul is not add",
    ]


def test_a_rule_without_a_focus_or_with_a_wrong_one_is_an_error() -> None:
    with pytest.raises(RewriteError, match="need a statement in focus"):
        MUL(State(SOURCE))
    with pytest.raises(RewriteError, match="no statement at 7: 2 there"):
        resolve(SOURCE, Site((), 7))
    with pytest.raises(RewriteError, match="no body 0 in statement 1"):
        resolve(SOURCE, Site(((1, 0),), 0))
    for step in ((-2, 0), (0, -1)):  # which Python would count from the end
        with pytest.raises(RewriteError, match=r"no body -?\d in statement -?\d on the way"):
            resolve(SOURCE, Site((step,), 0))


def test_rules_are_values_with_their_equation() -> None:
    assert str(rule_named("map_map")).startswith("map_map: ys = map f xs; zs = map g ys => zs = map (g . f) xs")
    assert [one.name for one in rules_of("horizontal fusion")] == ["map_beside_map", "reduce_beside_reduce"]
    assert add_to_mul.kinds == (Apply,)
    with pytest.raises(RewriteError, match=r"no rule is of a family 'flying'; there are simplification, dead code, .*"):
        rules_of("flying")
    with pytest.raises(RewriteError, match="no rule is named 'fly'"):
        rule_named("fly")
    with pytest.raises(RewriteError, match="two rules named add_to_mul"):
        rule("test", Apply)(add_to_mul.function)

    def without_equation(at: Place) -> Body | Declined:
        """Says nothing."""
        return at.become(Alias(SOURCE.parameters[1]))

    with pytest.raises(RewriteError, match="must begin with its equation"):
        rule("test")(without_equation)


def _gives_nothing(at: Place) -> Any:
    """x + y  =>  nothing"""


def _binds_nothing(at: Place) -> Body:
    """x + y  =>  nothing"""
    return at.bind()


def _gives_an_expression(at: Place) -> Any:
    """x + y  =>  x + y"""
    return at.expression


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_gives_nothing, r"rule _gives_nothing gave NoneType at 0\.0/0; it must give a Body, such as at\.become"),
        (_gives_an_expression, r"rule _gives_an_expression gave Apply at 0\.0/0; it must give a Body"),
        (_binds_nothing, r"0 values for 1 targets, q, at 0\.0/0"),
    ],
)
def test_rules_that_give_no_body(function: Any, said: str) -> None:
    with pytest.raises(RewriteError, match=said):
        run_strategy(SOURCE, everywhere(apply(Rule(function.__name__, "", "", (Apply,), function))))


def test_what_is_no_rule_is_told() -> None:
    with pytest.raises(RewriteError, match=r"rule add_to_mul is for a Place, not for a State; .* apply\(one\)"):
        run_strategy(SOURCE, everywhere(add_to_mul))  # type: ignore[arg-type]
    for wrong in (add_to_mul, ["add_to_mul"]):
        with pytest.raises(RewriteError, match="first_of is of rules"):
            first_of(wrong)  # type: ignore[arg-type]
    for given in ((_binds_nothing,), ("test", "Apply")):
        with pytest.raises(RewriteError, match=r"a rule has a family and kinds .*, as in @rule\(\"lessons\", Apply\)"):
            rule(*given)  # type: ignore[arg-type]


def test_every_rule_is_tested_to_fire_and_to_decline() -> None:
    import test_fusion_rules as fusion
    import test_simplification_rules as simplification

    families = ("simplification", "dead code", "fusion", "horizontal fusion")
    names = {one.name for family in families for one in rules_of(family)}
    assert names == {one[0] for one in (*fusion.FIRES, *simplification.FIRES)}
    assert names == {one[0] for one in (*fusion.DECLINES, *simplification.DECLINES)}
