"""Core programs into better core programs: simplification, fusion, what varies with what.

passes          simplify.py, fuse.py, read_concatenations.py, nest_maps.py, unchecked.py, free_contractions.py
for lowering    nest_folds.py, narrow_indices.py, overwriting.py with own_elements.py, fills.py, rows_of_none.py
analysis        nests.py, variance.py, used_names.py, found_contractions.py
"""
