"""From what users write to the core language, and the objects that users call.

einsum    einsum.py, einsum_plan.py, tensordot.py; einsum_calls.py, einsum_lists.py, einsum_parse.py, einsum_options.py
          and einsum_arrays.py take the arguments, einsum_program.py writes the core program (einsum_path.py,
          einsum_layout.py, einsum_orders.py, einsum_singles.py, einsum_types.py, semiring.py), einsum_bind.py
          compiles it;
          einsum_hurried.py puts that off for new shapes; einsum_quick.py and einsum_stored.py are short cuts for calls
          that were met before (function_key.py tells which epilogues were), einsum_memory.py and einsum_slices.py are
          for calls with a limit of memory, einsum_traced.py for calls in programs, einsum_too_large.py for those that
          need too much
trees     tree.py, tree_call.py, tree_plan.py; tree_parse.py, tree_steps.py, tree_layout.py, tree_memory.py,
          tree_program.py, tree_text.py, deep_trees.py
on disk   contraction_stored.py (plans, trees, epilogues), tree_stored.py (calls of trees), path_stored.py (paths),
          program_stored.py
torch     torch_tensors.py, torch_operator.py (gradients), torch_compiler.py
programs  program.py with program_options.py, program_arguments.py, program_compiled.py, program_quick.py (short cuts),
          program_tiles.py (tuned tile sizes) and program_pickle.py; program_trace.py runs a function on the proxies of
          program_tracing.py, array_proxy.py and scalar_tracing.py (scalar_constants.py, scalar_integers.py,
          scalar_powers.py, decided_truth.py)
names     array_functions.py with array_arguments.py, fold_functions.py, control_functions.py, scalar_functions.py,
          annotations.py, named_types.py, new_arrays.py; what NumPy's functions are on proxies: numpy_functions.py,
          numpy_ufuncs.py, axis_functions.py, shape_functions.py, matrix_products.py, gather_functions.py,
          neighbour_functions.py, with listed_arrays.py (lists that they take); foreign_functions.py (how NumPy and
          torch call them)
"""
