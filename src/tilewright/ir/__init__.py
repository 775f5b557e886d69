"""The core language: one form of programs from the frontends to just before the kernel language.

values        scalars.py, sizes.py (symbolic), lmad.py and views.py (where arrays lie in memory)
programs      nodes.py, operators.py, typing.py, builder.py; printer.py, parser.py and lexer.py (text and back)
meaning       verifier.py, interpreter.py, arguments.py
for passes    traversal.py, index_ranges.py
for tests     generator.py (random programs; its constructs are in generator_*.py)
for Python    dataclass.py (frozen classes that are cheap to import), cached.py
"""
