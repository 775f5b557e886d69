"""Tensor operations: placed on a machine and written as one kernel [S1].

placing.py and gemm_form.py decide; kernel.py with writer.py writes gemm.py and elementwise.py; compile.py calls it.
"""
