"""Contractions with a small operand whose long runs in memory are shared by several dimensions, on a CPU.

form.py decides and kernel.py writes; records.py and record_kernel.py do so for short sums of what lies together.
"""
