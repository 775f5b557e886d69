"""What was decided and why, as text.

explain.py is the whole of a contraction: its form (contraction_text.py, direct_text.py, matrix_vector_text.py),
what was declined (declined.py, declined_places.py), and its bounds (roofline.py). contractions.py finds the
contractions of a program; kernel_text.py prints kernels, text.py numbers
and tables; examples.py has contractions for examples.
"""
