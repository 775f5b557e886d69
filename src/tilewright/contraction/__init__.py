"""The canonical contraction: its form, its recognition, and rewrites on its dimensions.

contractions       form.py, recognise.py (with nest.py and affine.py), normalise.py, split_sum.py
tensor operations  tensor_operation.py, tensor_primitives.py, tensor_rules.py, tensor_rewrites.py, tensor_printer.py
"""
