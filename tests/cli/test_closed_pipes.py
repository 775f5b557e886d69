"""`tilewright ... | head`: a reader that has had enough ends the command without a word."""

from __future__ import annotations

import subprocess
import sys


def test_a_reader_that_has_gone_is_no_error() -> None:
    arguments = ["explain", "ij,jk->ik", "--sizes", "i=8,j=8,k=8"]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "tilewright", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None and command.stderr is not None
        command.stdout.close()
        said = command.stderr.read()
    assert said == ""
    assert command.returncode != 0
