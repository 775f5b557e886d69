"""Folds, scans and histograms of segments, shared out among the workers of any device [S2].

form.py says what they are, choice.py how they are shared out, steps.py and hist.py which kernels that takes:

by one worker          points.py, columns.py and row_folds.py (neighbouring segments together), rows.py, streams.py
by threads of blocks   groups.py, scans.py, look_back.py
histograms             bins.py and bin_rows.py (CPU), atomics.py (blocks)
"""
