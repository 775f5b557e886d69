"""The core language: sizes, types, memory layouts, nodes, verifier, printer and parser, interpreter."""
