"""Kernels of points: what each computes by the code of `items`, where it can in the lanes of vectors (`lanes`).

a kernel    lower_general.py (points), point_kernels.py; point_loops.py (loops over points), inner_maps.py,
            asked_ahead.py
folds on a  short_folds.py, lower_reduction.py with lower_order.py and register_folds.py (in lanes); scan_strips.py and
  CPU       scan_lanes.py (scans in vectors)
after that  dead_stores.py, waiting_last.py, products_apart.py
            whole_loops.py (loops of the host as one kernel)
"""
