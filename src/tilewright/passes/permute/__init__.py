"""Copies of an array between two layouts, on a CPU."""
