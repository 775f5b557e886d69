"""Copies of an array between two layouts.

decisions            form.py, choose.py, tiles.py
code                 kernel.py with writer.py; squares.py (transposes in registers)
past the caches      straight.py with straight_form.py; staged.py, strips.py, lines.py
blocks of threads    transposed.py
"""
