"""The canonical contraction: its form, its recognition, and rewrites on its dimensions.

contractions       form.py with kinds.py, recognise.py (with nest.py, affine.py, written_out.py), normalise.py,
                   split_sum.py
tensor operations  tensor_operation.py, tensor_primitives.py, tensor_rules.py, tensor_rewrites.py, tensor_printer.py
"""
