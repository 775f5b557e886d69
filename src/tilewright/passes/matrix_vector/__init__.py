"""Contractions that read one operand once and hardly anything else, on a CPU."""
