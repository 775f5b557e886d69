"""Core programs into better core programs: simplification, fusion, what varies with what.

passes          simplify.py, fuse.py, read_concatenations.py, nest_maps.py, one_pass.py, unchecked.py
for lowering    nest_folds.py, narrow_indices.py, overwriting.py, fills.py
analysis        variance.py, used_names.py
"""
