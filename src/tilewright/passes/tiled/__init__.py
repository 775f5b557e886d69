"""Block- and register-tiled contractions on devices with thread blocks [S0].

decisions   tiling.py (sizes and limits), choice.py (the cost model), form.py, shared_layout.py, groups.py
code        kernel.py with writer.py; copy.py (into shared memory), held.py, accumulate.py
"""
