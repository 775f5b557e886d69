"""Tensor operations: placed on a machine and written as one kernel [S1]."""
