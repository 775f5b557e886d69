"""Texts that are nearly right are read, or refused by an error that says why; nothing else happens."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_programs.generator import random_program
from tensor_support import random_contraction, random_elementwise
from typer.testing import CliRunner

import tilewright as tw
from tilewright.cli.main import app
from tilewright.ir.lexer import ParseError
from tilewright.ir.parser import MOST_NESTING, parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.verifier import IRError, verify
from tilewright.tune.text import parse_tunings

SEEDS = st.integers(0, 2**32 - 1)
CHARACTERS = "()[]{}:,=\\->\n \"'0123456789abzn_+*/%@.`\x00é"
WORDS = ("let", "in", "map", "9" * 25, "-1", "1e999", "nan", "[n][m]f32", "f16", "reduce", "(", ")", "...", "->")


def changed(text: str, random: Random) -> str:
    """A text with one to three small changes: something left out, put in, said twice, exchanged, or cut off."""
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(text) + 1)
        stop = min(len(text), start + random.randint(1, 6))
        lines, words = text.split("\n"), text.split(" ")
        match random.randrange(6):
            case 0:
                text = text[:start] + text[stop:]
            case 1:
                text = text[:start] + random.choice(CHARACTERS) + text[start:]
            case 2:
                text = text[:start] + text[start:stop] * 2 + text[stop:]
            case 3:
                words[random.randrange(len(words))] = random.choice((*words, *WORDS))
                text = " ".join(words)
            case 4:
                one, other = random.randrange(len(lines)), random.randrange(len(lines))
                lines[one], lines[other] = lines[other], lines[one]
                text = "\n".join(lines)
            case _:
                text = text[:start]
    return text


@given(seed=SEEDS)
def test_core_texts(seed: int) -> None:
    random = Random(seed)
    program = random_program(seed % 50, depth=2, statements=3, segmented=seed % 3 == 0)
    text = changed(print_program(program), random)
    try:
        read = parse_program(text)
        verify(read)
    except (ParseError, IRError) as error:
        assert len(str(error)) > 10
    else:
        assert parse_program(print_program(read)) == read


def nested(depth: int) -> str:
    if depth == 0:
        return "let (y: f32) = e + e in (y)"
    return f"let (y{depth}: f32) = if true then {nested(depth - 1)} else (e) in (y{depth})"


def test_what_nests_too_deeply_is_refused_by_its_place() -> None:
    read = parse_program(f"def f (e: f32) = {nested(MOST_NESTING - 1)}")
    verify(read)
    assert parse_program(print_program(read)) == read
    for depth in (MOST_NESTING, 400):
        with pytest.raises(ParseError, match=r"line 1, column \d+: nested more deeply than"):
            parse_program(f"def f (e: f32) = {nested(depth)}")
    size = "(" * 5000 + "n" + ")" * 5000
    with pytest.raises(ParseError):
        parse_program(f"def f (e: [{size}]f32) = (e)")
    with pytest.raises(ValueError, match="nests brackets too deeply"):
        tw.TensorOperation.from_json("[" * 100_000)


TUNING = """\
# tilewright tuning 1
program = matmul 5f0c6a3d9b1e47728c05d7a1f3e2b4c6
device = cpu: AMD EPYC 9354, 2 cores
outer_0=4096
block_0=inf
"""


@given(seed=SEEDS)
def test_tunings(seed: int) -> None:
    assert len(parse_tunings(TUNING)) == 1
    try:
        parse_tunings(changed(TUNING, Random(seed)), "random.tuning")
    except ValueError as error:
        assert "random.tuning" in str(error)


JUNK = (None, True, -1, 0, 1.5, float("nan"), 1e400, 10**30, -(10**30), "", "x", [], {}, [1, 2], "prim", {"a": 1}, [[]])


def paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    yield path
    if isinstance(content, dict | list):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from paths(content[key], (*path, key))


def replaced(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    result = copy.deepcopy(content)
    part = result
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return result


@given(seed=SEEDS)
def test_tensor_operations(seed: int) -> None:
    random = Random(seed)
    made = random_contraction(seed, "f32") if seed % 2 else random_elementwise(seed, "f64", "clamp")
    text = made.to_json()
    if random.random() < 0.7:
        content = json.loads(text)
        for _ in range(random.randint(1, 2)):
            content = replaced(content, random.choice(list(paths(content))), random.choice(JUNK))
        text = json.dumps(content)
    else:
        text = changed(text, random)
    try:
        read = tw.TensorOperation.from_json(text)
    except (ValueError, TypeError) as error:
        assert len(str(error)) > 10
    else:
        assert tw.TensorOperation.from_json(read.to_json()) == read


EXPRESSIONS = ("ij,jk->ik", "ij,ij->", "i,i", "...ij,...jk->...ik", "ab,bc,cd->ad", "ii->i", "a b, b c -> a c")
OPERANDS = (np.ones((3, 3), np.float32), np.ones(3), np.ones((2, 3, 3)), np.ones(()), np.ones((0, 3)))
STRANGE = (None, "x", object(), np.array(["a"]), [1, 2], [[1], [2, 3]], {}, 3.5)


@given(seed=SEEDS)
def test_einsums(seed: int) -> None:
    random = Random(seed)
    expression = changed(random.choice(EXPRESSIONS), random)
    count = random.choice((expression.count(",") + 1, random.randint(0, 3)))
    operands = [random.choice(OPERANDS if random.random() < 0.8 else STRANGE) for _ in range(count)]
    for call in (tw.einsum, tw.einsum_tree):
        try:
            call(expression, *operands)
        except (ValueError, TypeError) as error:
            assert len(str(error)) > 10


COMMANDS = (
    "explain ij,jk->ik --sizes i=8,j=4,k=9 --machine h100",
    "show ij,jk->ik --sizes i=8,j=4,k=9 --stage core",
    "explain ab,bc->ac -s a=3,b=2,c=9 -d f64 --semiring min_plus",
    "einsum i,i-> A A",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_lines(command: str, tmp_path: Path) -> None:
    """An exit code of 0 or 2, and no traceback; also for files that are damaged."""
    array = tmp_path / "a.npy"
    np.save(array, np.arange(3.0))
    content = array.read_bytes()
    for seed in range(12):
        random = Random(f"{command} {seed}")
        words = (changed(command, random) if seed else command).replace("A", str(array)).split()
        if seed % 3 == 2:
            place = random.randrange(len(content))
            array.write_bytes(content[:place] + bytes([random.randrange(256)]) + content[place + random.randrange(9) :])
        result = CliRunner().invoke(app, words)
        assert result.exit_code in ((0, 2) if seed else (0,)), (words, result.output, result.exception)
        assert "Traceback" not in result.output
