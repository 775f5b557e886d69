"""Contractions with a small operand whose long runs in memory are shared by several dimensions, on a CPU."""
