"""What was decided and why, as text.

explain.py is the whole of a contraction: its form (cpu_text.py, tiled_text.py), what was declined (declined.py,
declined_places.py), and its bounds (roofline.py). contraction_text.py prints contractions and decisions for `show`,
kernel_text.py kernels, text.py numbers and tables, derivation_page.py derivations; contractions.py finds the
contractions of a program, and examples.py has some for examples.
"""
