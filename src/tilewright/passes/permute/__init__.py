"""Copies of an array between two layouts.

decisions            form.py, choose.py with copied.py, tiles.py, interleaving.py
code                 kernel.py with writer.py; squares.py (transposes in registers), interleaved.py
past the caches      overlapped.py with overlapped_form.py, straight.py with straight_form.py,
                     joined.py with joined_form.py, run_rows.py (of these three);
                     carried.py with carried_form.py; staged.py, strips.py, lines.py
blocks of threads    transposed.py
"""
