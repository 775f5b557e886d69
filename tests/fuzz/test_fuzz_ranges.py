"""What programs refuse by a clear error is no failure of a random program of NumPy's functions."""

from __future__ import annotations

import fuzz_numpy
from fuzz_trials import Counts

from tilewright.runtime.devices import device_for


def test_slices_below_zero_as_parts_of_what_is_joined() -> None:
    trial = fuzz_numpy.make_trial(7710074)
    assert "np.diff(a, axis=0)" in trial.text and "np.pad(v0" in trial.text
    assert (0, 3) in [one[0].shape for one in trial.arguments]
    counts = Counts()
    assert fuzz_numpy.run_trial(trial, device_for("cpu"), counts) is None
    assert counts.out_of_range > 0
