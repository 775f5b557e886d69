"""Nested parallelism into segmented operations over flat spaces [S2]."""
