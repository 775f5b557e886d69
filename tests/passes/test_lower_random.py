"""Random programs on the devices against the interpreter."""

from __future__ import annotations

import pytest
from lowering_checks import check
from random_programs.generator import random_arguments, random_program


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_random_programs_on_the_cpu(first: int) -> None:
    for seed in range(first, first + 10):
        program = random_program(seed)
        check(program, random_arguments(program, seed + 1), optimise=seed % 2 == 0)


@pytest.mark.opencl
@pytest.mark.parametrize("first", range(200, 225, 5))
def test_random_programs_on_opencl(first: int) -> None:
    for seed in range(first, first + 5):
        program = random_program(seed)
        check(program, random_arguments(program, seed), device="opencl", optimise=seed % 2 == 0)


@pytest.mark.gpu
@pytest.mark.parametrize("first", range(300, 340, 10))
def test_random_programs_on_cuda(first: int) -> None:
    for seed in range(first, first + 10):
        program = random_program(seed)
        check(program, random_arguments(program, seed), device="cuda")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 100):
        program = random_program(seed)
        device = "opencl" if seed % 10 == 0 else "cpu"
        check(program, random_arguments(program, seed), device=device, optimise=seed % 2 == 0)
