"""Code of scalars in the lanes of vectors: neighbouring points together.

a function             vectorise.py, vector_transposes.py
loops over points      masked_lanes.py (what differs: lane_variance.py), for points that loop as long as they like
points with scans      lane_loops.py, written by widen_lanes.py and lane_strips.py
nests of streams       lane_choice.py (the code: streams/lanes.py)
"""
