"""From what users write to the core language: einsum expressions and traced Python programs."""
