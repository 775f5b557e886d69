"""Contractions as steps of programs: each gets one of the forms of direct/, packed/, matrix_vector/, lane_products/ and
tiled/.

steps       contraction_steps.py; bound_contraction.py (for known sizes); array_folds.py, map_folds.py (of one array);
            remembered.py
launches    contraction_launches.py, by the choices of form_choice.py, lane_choice.py and record_choice.py; any_shape.py
            (one kernel for many shapes), relaid.py (operands that are copied first), split_sums.py (sums in pieces)
"""
