"""The core language: one form of programs from the frontends to just before the kernel language.

values        scalars.py, sizes.py (symbolic), counts.py and joined.py (extents that may be below zero), lmad.py and
              views.py (where arrays lie in memory)
programs      nodes.py, operators.py, typing.py, builder.py; printer.py, parser.py and lexer.py (text and back)
meaning       verifier.py, interpreter.py, arguments.py, written_indices.py (for errors)
for passes    traversal.py, index_ranges.py
for Python    dataclass.py (frozen classes that are cheap to import), cached.py
"""
