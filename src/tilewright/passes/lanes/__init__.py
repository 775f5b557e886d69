"""Code of scalars in the lanes of vectors: neighbouring points together.

a function             vectorise.py, vector_transposes.py
code of points         lane_code.py (expressions: lane_values.py, rows: lane_strips.py, what differs: lane_variance.py)
loops over points      masked_lanes.py, for points that loop or compute functions
points with scans      lane_loops.py
results past caches    past_caches.py
"""
