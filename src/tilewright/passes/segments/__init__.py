"""Folds, scans and histograms of segments, shared out among the workers of any device [S2].

form.py says what they are, choice.py how they are shared out, steps.py and hist.py which kernels that takes:

by one worker          points.py, columns.py with column_rows.py and row_folds.py (neighbouring segments together),
                       rows.py, streams.py
by threads of blocks   groups.py, scans.py, look_back.py
histograms             bins.py (CPU), atomics.py (blocks); of rows bin_rows.py, row_bins.py, held_rows.py, and
                       computed_rows.py
"""
