"""The page of a derivation: every step is there, nothing of a program becomes markup, and the whole programs add up."""

from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs.generator import random_program

from tilewright.cli.bench_file import read_programs
from tilewright.cli.stages import generic_types
from tilewright.ir.nodes import Statement
from tilewright.ir.parser import parse_program
from tilewright.ir.printer import print_program, print_statement
from tilewright.machine.model import Machine
from tilewright.machine.named import CPU_AVX512, H100
from tilewright.passes.pipelines import run_pipeline
from tilewright.report import derivation_page as page_module
from tilewright.report.derivation_page import derivation_page
from tilewright.rewrite.derivation import Derivation, Recording

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
UNCLOSED = {"meta", "input"}


class Page(HTMLParser):
    """A page's elements: their nesting is checked; the texts of some are kept."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in UNCLOSED:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data


def derived(file: str, machine: Machine = CPU_AVX512, name: str = "") -> Derivation:
    program = read_programs(EXAMPLES / f"{file}.py")[1][name or file]
    return program.derivation(*generic_types(program, "f32"), target=machine)


def whole_programs(page: Page) -> list[list[str]]:
    """The programs after each step, as the page's script puts them together."""
    data = json.loads(page.texts["script"][0])
    lines, found = list(data["source"]), []
    for start, gone, come in data["changes"]:
        lines[start : start + gone] = come
        found.append(list(lines))
    return found


def agrees(derivation: Derivation) -> None:
    page = Page(derivation_page(derivation))
    assert len(page.texts.get("details", [])) == len(derivation.steps)
    for number, (step, shown) in enumerate(zip(derivation.steps, page.texts.get("details", []), strict=True), 1):
        assert f"{number}. {step.rule}" in shown
        assert step.before_text in shown
        assert step.after_text in shown
    assert whole_programs(page) == [print_program(one.after).splitlines() for one in derivation.steps]
    sources = page.texts["pre"]
    assert sources[0] == print_program(derivation.source)
    assert sources[-1] == print_program(derivation.program)
    for refusal in derivation.refusals:
        assert any(refusal.reason in one for one in page.texts["li"])


@pytest.mark.parametrize("name", ["kmeans", "nbody", "mandelbrot", "lavamd"])
def test_all_of_a_derivation_is_on_its_page(name: str) -> None:
    agrees(derived(name))


def test_a_machine_may_be_another_one() -> None:
    on_cpu, on_gpu = (derived("filter", one, "filter_above") for one in (CPU_AVX512, H100))
    assert on_cpu.source == on_gpu.source
    assert {one.rule for one in on_cpu.steps} > {one.rule for one in on_gpu.steps}


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_pages_of_random_programs(seed: int) -> None:
    program = random_program(seed)
    recording = Recording(program)
    run_pipeline(program, derivation=recording)
    agrees(recording.derivation)


def test_statements_that_stay_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(f"  let (x{k}: [n]f32) = rearrange (0) x\n" for k in range(50))
    program = parse_program(f"def views (x: [n]f32) =\n{lines}  in ({', '.join(f'x{k}' for k in range(50))})")
    recording = Recording(program)
    run_pipeline(program, derivation=recording)
    printed: list[Statement] = []

    def counting(statement: Statement, indent: int = 0) -> str:
        printed.append(statement)
        return print_statement(statement, indent)

    monkeypatch.setattr(page_module, "print_statement", counting)
    agrees(recording.derivation)
    assert len(recording.derivation.steps) == 50
    assert len(printed) == 50  # and not once more after each step


def test_names_stay_text() -> None:
    program = random_program(1, name="</script><b>")
    text = derivation_page(Derivation(program))
    assert text.count("</script>") == 2
    assert "<b>" not in text
    assert Page(text).texts["h1"] == ["</script><b>"]


def test_the_script_puts_the_programs_together(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, which runs the page's script")
    derivation = derived("kmeans")
    data, script = Page(derivation_page(derivation)).texts["script"]
    file = tmp_path / "page.js"
    file.write_text(
        f"const data = {json.dumps(data)};"
        "const element = { textContent: data, addEventListener() {} };"
        "const document = { getElementById: () => element, querySelectorAll: () => [], addEventListener() {} };"
        f"{script}\n"
        f"for (let n = 1; n <= {len(derivation.steps)}; n++) console.log(programAfter(n).flat().join('\\n'));"
    )
    done = subprocess.run([node, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(print_program(one.after).rstrip("\n") + "\n" for one in derivation.steps)
