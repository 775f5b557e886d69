"""Words where letters are meant, names that are nearly right, and tiles of processors that choose their own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw


def test_words_in_an_expression() -> None:
    a, b = np.ones((3, 4)), np.ones((4, 5))
    with pytest.raises(
        ValueError, match=r"needs 7 dimensions, but has 2; each letter is an index: words go into lists"
    ):
        tw.einsum("row cols, cols k -> row k", a, b)
    found = tw.einsum(a, ["row", "column"], b, ["column", "k"], ["row", "k"])
    np.testing.assert_allclose(found, a @ b)
    with pytest.raises(ValueError, match=r"needs 3 dimensions, but has 2$"):
        tw.einsum("ijk,jl->il", a, b)


def test_names_that_are_nearly_right_are_suggested() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import tilewright as tw; tw.einsumm"], capture_output=True, text=True, check=False
    )
    assert "Did you mean: 'einsum'" in run.stderr


def test_tiles_are_told_by_the_letters_of_the_user() -> None:
    with pytest.raises(tw.IllegalTiling, match=r"einsum 'xy,yz->xz': tiles are given for x, but on a CPU"):
        tw.einsum("xy,yz->xz", np.ones((3, 4)), np.ones((4, 5)), tiles={"x": (4, 4)}, target="cpu")
