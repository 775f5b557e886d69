"""Several statements in one pass over the same rows, and scans in vectors, on a CPU.

form.py decides; steps.py and one_pass.py make kernels of it: points.py (with a scan), map_points.py (without),
offset_points.py (folds between offsets), inside_points.py (in a point of another kernel).
"""
