"""Programs and contractions step by step towards kernels; pipelines.py lists the passes in order.

Core programs: core/ (simplify, fuse, variance) and flattening/. Then compile.py has statements.py give each statement a
lowering (rarer ones by further_forms.py), of which kernel_steps.py and contraction_steps.py make steps, and
form_choice.py and bound_contraction.py each contraction a form (split_sums.py: or two, with a sum that is split), which
is decided in a `form.py` or `choice.py` before a line of it is written; launch_writer.py and two_sides.py are what the
writers share:

    contractions   direct/, packed/ and matrix_vector/ (CPU), tiled/ (blocks of threads), tensor/ (tensor operations)
    copies         permute/
    the rest       segments/ (folds, scans, histograms of segments), streams/ (tiling), sweeps/ (one pass over rows)
    inside a point items/ (sequential code of one work item), lanes/ (neighbouring points in the lanes of vectors)
"""
