"""Programs and contractions step by step towards kernels; pipelines.py lists the passes in order.

Core programs: core/ (simplify, fuse, variance), last_rewrites.py and flattening/. Then compile.py has statements.py
give each statement a lowering (rarer ones by further_forms.py, `if` and `loop` by host_control.py), with what known.py
knows of names in scope; kernel_steps.py and contractions/ make steps of it, and unread_steps.py leaves some out. What a
kernel is like is decided in a `form.py` or `choice.py` before a line of it is written:

    inside a point items/ (sequential code of one work item), lanes/ (neighbouring points in the lanes of vectors)
    points         points/ (a kernel of points), segments/ (folds, scans, histograms of segments), streams/ (tiling),
                   sweeps/ (one pass over rows)
    contractions   direct/, packed/, matrix_vector/, lane_products/ (CPU), tiled/ (blocks of threads), tensor/;
                   contractions/ chooses among them
    copies         permute/

Imports run downwards in a list of these that the tests of the house keep.
"""
