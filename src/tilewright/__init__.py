"""Tilewright: a compiler for regular data-parallel array programs."""
