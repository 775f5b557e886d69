"""Contractions that read one operand once and hardly anything else, on a CPU.

form.py decides, row_products.py where sums run along the rows of both operands; kernel.py writes with writer.py.
"""
