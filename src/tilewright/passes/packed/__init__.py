"""The packed CPU form of a contraction: panels packed from any strides, and BLIS's loop nest (GETT).

decisions   form.py, choice.py, blocks.py (how much at once), boxes.py (rows that are no whole lines)
code        kernel.py (the loops) with writer.py; operands.py, panels.py, tables.py and ahead.py (packing), micro.py and
            combine.py (the register tile), epilogue.py
results     store.py, turned.py, assemble.py
"""
