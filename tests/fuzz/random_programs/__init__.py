"""Random well-typed programs, for tests of the language, the rewrites, the passes and the devices.

generator.py    `random_program` and `random_arguments`; the state of writing one program
variety.py      which types, sizes and constructs programs are made of
scalars.py      operations of scalars, and operators that folds may use
arrays.py, soacs.py, loops.py, segmented.py, places.py, pairs.py, products.py, rows.py, idioms.py, further.py: the
                constructs by kind
"""
