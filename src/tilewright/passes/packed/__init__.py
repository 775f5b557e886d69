"""The packed CPU form of a contraction: panels packed from any strides, and BLIS's loop nest (GETT).

decisions   form.py on two_sides.py, choice.py, register_shape.py, blocks.py (how much at once), boxes.py
            (rows that are no whole lines), dots.py (several products by one instruction)
code        kernel.py (the loops) with writer.py; operands.py, panels.py, scalar_panels.py, tile_rows.py,
            tile_columns.py, joined_runs.py, reading.py, squares.py, tables.py with runs.py and ahead.py (packing);
            micro.py (the loops over tiles), register_tile.py, combine.py, tiles.py (sums in tiles), on_the_way.py
            (tiles that pack); epilogue.py
results     store.py, chains.py (outputs that begin within a line), waiting.py, turned.py, assemble.py
"""
