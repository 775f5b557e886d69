"""Generated programs are well-formed, and their text is read back exactly."""

from __future__ import annotations

import pytest
from random_programs.generator import random_program

from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program
from tilewright.ir.traversal import FreshNames, canonical, with_fresh_names
from tilewright.ir.verifier import verify


@pytest.mark.parametrize("decade", range(20))
def test_generated_programs_round_trip(decade: int) -> None:
    for seed in range(10 * decade, 10 * decade + 10):
        program = random_program(seed)
        verify(program)
        text = print_program(program)
        again = parse_program(text)
        assert again == program, f"seed {seed}"
        assert print_program(again) == text, f"seed {seed}"


@pytest.mark.parametrize("seed", range(20))
def test_generated_programs_keep_their_form_under_new_names(seed: int) -> None:
    program = random_program(seed)
    copy = with_fresh_names(program, FreshNames(program))
    verify(copy)
    assert canonical(copy) == canonical(program)
