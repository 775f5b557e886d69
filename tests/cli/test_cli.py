"""The `tilewright` command, in process, and once as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright
from tilewright.cli import stages
from tilewright.cli.main import app
from tilewright.contraction.form import Contraction
from tilewright.machine.named import CPU_AVX2, H100
from tilewright.passes.contractions.contraction_launches import contraction_launches

SIZES = "a=64,b=48,q=40"


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


def refused(*arguments: str) -> str:
    """The message of a call that the user got wrong."""
    output = run(*arguments, code=2)
    assert output.startswith("tilewright: error: ")
    assert output.count("\n") == 1
    return output


def test_version_and_help() -> None:
    assert run("--version") == f"tilewright {tilewright.__version__}\n"
    assert all(command in run("--help") for command in ("einsum", "show", "explain", "derive", "devices"))


def test_the_command_line_imports_nothing_heavy() -> None:
    script = (
        "import sys, tilewright.cli.main; print([m for m in ('numpy', 'llvmlite', 'opt_einsum') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_as_a_program() -> None:
    command = [sys.executable, "-m", "tilewright.cli.main", "explain", "ij,jk->ik"]
    done = subprocess.run([*command, "--sizes", "i=2"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "tilewright: error: einsum 'ij,jk->ik': no size is given for j, k\n"


# --- einsum -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    a, b = rng.integers(-5, 5, (6, 7)).astype(np.float32), rng.integers(-5, 5, (7, 4)).astype(np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    return tmp_path / "a.npy", tmp_path / "b.npy", a, b


def test_einsum_of_files(files: tuple[Path, Path, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    one, other, a, b = files
    out = tmp_path / "c"  # no ending is added
    assert "float32[6, 4]" in run("einsum", "ij,jk->ik", str(one), str(other), "-o", str(out))
    np.testing.assert_array_equal(np.load(out), a @ b)
    run("einsum", "ij,jk->ik", str(one), str(other), "-o", str(out), "--semiring", "min_plus")
    np.testing.assert_array_equal(np.load(out), (a[:, :, None] + b).min(axis=1))
    run("einsum", "ij,jk->ik", str(one), str(other), "-o", str(out), "--dtype", "f64")
    assert np.load(out).dtype == np.float64
    assert run("einsum", "ij->", str(one)) == f"{a.sum()}\n"


def test_einsum_refuses_with_a_reason(files: tuple[Path, Path, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    one, other = str(files[0]), str(files[1])
    assert "there is no file" in refused("einsum", "ij->ji", str(tmp_path / "none.npy"))
    (tmp_path / "text.npy").write_text("1 2 3")
    assert "no .npy file of numbers" in refused("einsum", "i->i", str(tmp_path / "text.npy"))
    saved = tmp_path / "damaged.npy"
    np.save(saved, np.ones(3))
    saved.write_bytes(saved.read_bytes().replace(b"(3,)", b"(3,\0", 1))  # from 3.12 on an error of Python's tokenizer
    assert "no .npy file of numbers" in refused("einsum", "i->i", str(saved))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "no .npy file of numbers" in refused("einsum", "i->i", str(tmp_path / "objects.npy"))
    np.savez(tmp_path / "several.npz", x=np.ones(2))
    assert "several arrays" in refused("einsum", "i->i", str(tmp_path / "several.npz"))
    assert "'j' has size" in refused("einsum", "ij,kj->ik", one, other)
    assert "no folder" in refused("einsum", "ij,jk->ik", one, other, "-o", str(tmp_path / "none" / "c.npy"))
    assert "plus_time" in refused("einsum", "ij,jk->ik", one, other, "--semiring", "plus_time")
    assert "names no device" in refused("einsum", "ij,jk->ik", one, other, "--target", "tpu")
    refused("einsum", "ij,jk->ik", one, other, "--dtype", "float99")


@pytest.mark.parametrize("name", ["i8", "u8"])
def test_einsum_refuses_types_that_are_others_in_numpy(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "a.npy", np.full((2, 2), 100, np.int8))
    said = f"einsum 'ij->i': dtype '{name}' is {np.dtype(name)} in NumPy"
    assert said in refused("einsum", "ij->i", str(tmp_path / "a.npy"), "-d", name)
    assert run("einsum", "ij->i", str(tmp_path / "a.npy"), "-d", "int64") == "[200 200]\n"


def test_einsum_writes_no_file_that_it_cannot_read(tmp_path: Path) -> None:
    file, out = tmp_path / "a.npy", tmp_path / "out.npy"
    np.save(file, np.ones((2, 2), np.float32))
    said = refused("einsum", "ij->i", str(file), "-d", "bf16", "-o", str(out))
    assert said.endswith("out.npy: NumPy's files do not hold bf16; compute in f32 (--dtype f32)\n")
    assert not out.exists()
    assert run("einsum", "ij->i", str(file), "-d", "bf16") == "[2 2]\n"
    run("einsum", "ij->i", str(file), "-d", "f16", "-o", str(out))
    assert run("einsum", "i->i", str(out)) == "[2. 2.]\n"


def test_the_place_of_an_error_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_TRACEBACK", "1")
    result = CliRunner().invoke(app, ["explain", "ij->", "--sizes", "i"])
    assert isinstance(result.exception, ValueError)


# --- show and explain -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("core", ["def einsum", "rearrange", "redomap"]),
        ("fused", ["def einsum"]),
        ("contraction", ["kind  name  size", "neutral  0.0f32"]),
        ("tiled", ["partial tiles: contracted", "left:"]),
        ("kernel", ["__global__"]),
    ],
)
def test_show_after_each_stage(stage: str, words: list[str]) -> None:
    output = run("show", "aq,qb->ab", "--sizes", "a=64,b=64,q=36", "--stage", stage, "-m", "h100")
    assert all(word in output for word in words)


@pytest.mark.parametrize(
    ("text", "machine", "word"),
    [
        ("cuda", "a100", "__global__"),
        ("opencl", "opencl-gpu", "__kernel"),
        ("opencl", "a100", "__kernel"),
        ("llvm", "cpu-avx512", "<16 x float>"),
        ("llvm", "cpu-neon", "<4 x float>"),
        ("ir", "a100", "barrier"),
        ("ir", "cpu-avx2", "kernel contraction, 1 thread per block"),
    ],
)
def test_show_kernels(text: str, machine: str, word: str) -> None:
    assert word in run("show", "aq,qb->ab", "-s", SIZES, "--text", text, "-m", machine)


def test_show_has_defaults() -> None:
    assert "define void @" in run("show", "aq,qb->ab", "-s", SIZES)
    assert "__global__" in run("show", "aq,qb->ab", "-s", SIZES, "--text", "cuda")


@pytest.mark.parametrize("stage", ["contraction", "tiled", "kernel"])
def test_show_says_that_a_view_has_no_kernel(stage: str) -> None:
    assert "nothing is computed" in run("show", "ij->ji", "-s", "i=3,j=4", "--stage", stage)


def test_the_kernel_is_the_one_that_runs() -> None:
    (found,) = stages.follow("aq,qb->ab", stages.parse_sizes(SIZES), "f64").found
    assert isinstance(found, Contraction)
    for machine, text in ((H100, "cuda"), (CPU_AVX2, "llvm")):
        (launch,) = contraction_launches(found, machine)
        shown = run("show", "aq,qb->ab", "-s", SIZES, "-d", "f64", "-m", machine.name)
        assert shown == stages.launch_text(launch, machine, text) + "\n"


def test_explain() -> None:
    output = run("explain", "icaq,qbjk->abcijk", "-s", "a=16,b=16,c=16,i=16,j=16,k=16,q=31", "-m", "a100")
    for word in ("a100", "roofline", "threads", "resident", "shared", "registers", "partial", "sectors", "banks",
                 "declined", "contracted: the last pieces"):  # fmt: skip
        assert word in output
    assert "packed panels" in run("explain", "aq,qb->ab", "-s", SIZES, "-m", "host")


def test_expressions_of_several_steps_and_of_none() -> None:
    output = run("explain", "ab,bc,cd->ad", "-s", "a=8,b=40,c=40,d=8", "-m", "h100")
    assert "-- step 1 of 2" in output
    assert "-- step 2 of 2" in output
    assert "a view of the operand" in run("explain", "ab->ba", "-s", "a=8,b=40", "-m", "h100")
    assert "no contraction" in run("explain", "a,b->ab", "-s", "a=8,b=40", "-m", "h100")
    assert "no contraction" in run("show", "a,b->ab", "-s", "a=8,b=40", "-m", "h100")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["aq,qb->ab", "-s", "a=1,b=2,q"], "'q' is not of the form a=32"),
        (["aq,qb->ab", "-s", "a=1,b=2,q=0"], "at least 1"),
        (["aq,qb->ab", "-s", "a=1,a=2,b=2,q=3"], "given twice"),
        (["aq,qb->ab", "-s", "a=1,b=2"], "no size is given for q"),
        (["aq,qb->az", "-s", "a=1,b=2,q=3,z=4"], "output index 'z' occurs in no operand"),
        (["aq,qb->ab", "-s", SIZES + ",z=3"], "given for z"),
        (["aq;qb->ab", "-s", SIZES], "unexpected ';'"),
        (["...q,qb->...b", "-s", SIZES], "ellipsis"),
        (["aq,qb->ab", "-s", SIZES, "-d", "f31"], "f31"),
        (["aq,qb->ab", "-s", SIZES, "-m", "z80"], "no machine is named 'z80'"),
        (["aq,qb->ab", "-s", SIZES, "-m", "cuda:99"], "there is no device"),
        (["aq,qb->ab", "-s", SIZES, "--semiring", "plus"], "unknown semiring"),
    ],
)
def test_mistakes_are_named(arguments: list[str], words: str) -> None:
    assert words in refused("explain", *arguments)


def test_texts_that_a_machine_does_not_have() -> None:
    assert "LLVM text is for a CPU" in refused("show", "aq,qb->ab", "-s", SIZES, "--text", "llvm", "-m", "a100")
    assert "needs a GPU" in refused("show", "aq,qb->ab", "-s", SIZES, "--text", "cuda", "-m", "cpu-avx2")
    assert "not the kernel" in refused("show", "aq,qb->ab", "-s", SIZES, "--text", "cuda", "--stage", "core")


def test_devices() -> None:
    output = run("devices")
    assert output.splitlines()[1].startswith("cpu")
    for device in tilewright.devices():
        assert device.name in output


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "show", "--help"], capture_output=True, text=True, check=True
    )
    assert "--machine" in done.stdout


def test_only_public_names_are_listed() -> None:
    assert {name for name in dir(tilewright) if not name.startswith("__")} == {*tilewright.__all__} - {"__version__"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import tilewright as tw\n1 / 0\n", ":2: ZeroDivisionError: division by zero"),
        ("def f(:\n", ":1: SyntaxError: invalid syntax"),
        (
            "import tilewright as tw\n@tw.program\ndef f(x: tw.f64['n']): return tw.map(lambda e: e.foo, x)\n",
            "prog.py:3: in program f: the scalar e of type f64 has no attribute 'foo'",
        ),
    ],
)
def test_an_error_in_a_users_file_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "prog.py").write_text(text)
    for command in ("explain", "bench", "tune"):
        if "lambda" in text and command != "explain":
            continue
        message = refused(command, str(tmp_path / "prog.py"))
        assert said in message and "prog.py" in message


def test_generic_programs_are_explained_for_the_type_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        "import tilewright as tw\n"
        "@tw.program\n"
        "def plus(x: tw.any_['n'], k: tw.integer_): return tw.map(lambda e: e + 1, x), k\n"
    )
    assert "a kernel over n points" in run("explain", str(tmp_path / "prog.py"))
    assert "a kernel over n points" in run("explain", str(tmp_path / "prog.py"), "--dtype", "c64")
    assert "'f33' is no dtype" in refused("explain", str(tmp_path / "prog.py"), "--dtype", "f33")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    assert "cannot write /dev/full: No space left" in refused(
        "einsum", "i->", str(tmp_path / "a.npy"), "-o", "/dev/full"
    )


PROGRAMS = """
import tilewright as tw

@tw.program
def rows(xss: tw.float_["n", "m"]):
    return tw.map(lambda xs: tw.reduce("add", 0, tw.map(lambda x: x * x, xs)), xss)

@tw.program
def double(xs: tw.f32["n"]):
    return tw.map(lambda x: x + x, xs)
"""


def test_derivations_are_printed_and_written_as_pages(tmp_path: Path) -> None:
    file, page = tmp_path / "programs.py", tmp_path / "rows.html"
    file.write_text(PROGRAMS)
    printed = run("derive", str(file), "--dtype", "f64", "--machine", "h100")
    assert "rows\n1. reduce_map at " in printed
    assert "[n]f64" in printed
    assert printed.endswith("double\nno steps\n")
    assert run("derive", str(file), "--entry", "rows", "--page", str(page)) == f"written: {page}\n"
    assert "<b>reduce_map</b>" in page.read_text()
    assert "a page shows one program, and" in refused("derive", str(file), "--page", str(page))
    assert "has no program named rose; it has rows, double" in refused("derive", str(file), "--entry", "rose")
    missing = tmp_path / "none" / "rows.html"
    assert "there is no folder" in refused("derive", str(file), "--entry", "rows", "--page", str(missing))


@pytest.mark.parametrize(("option", "value"), [("--sizes", "a=3"), ("--semiring", "min_plus")])
def test_a_file_is_not_explained_with_options_of_expressions(tmp_path: Path, option: str, value: str) -> None:
    file = tmp_path / "programs.py"
    file.write_text(PROGRAMS)
    assert f"{option} is for einsum expressions; the programs of " in refused("explain", str(file), option, value)
