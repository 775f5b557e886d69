"""Nested parallelism into segmented operations over flat spaces [S2].

the passes   flatten.py; flatten_contractions.py (around contractions); kinds.py
versions     flatten_tree.py (the tree of decisions), flat_programs.py and as_written.py (where none is needed)
"""
