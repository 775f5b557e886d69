"""Contractions as steps of programs: each gets one of the forms of direct/, packed/, matrix_vector/, lane_products/ and
tiled/.

steps       contraction_steps.py; bound_contraction.py (for known sizes); array_folds.py, map_folds.py (of one array);
            remembered.py
launches    contraction_launches.py, by the choices of form_choice.py and lane_choice.py; relaid.py (operands that are
            copied first), split_sums.py (sums in pieces)
"""
