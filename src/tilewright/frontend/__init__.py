"""From what users write to the core language, and the objects that users call.

einsum    einsum.py, einsum_plan.py; einsum_calls.py, einsum_parse.py, einsum_options.py and einsum_arrays.py take the
          arguments, einsum_program.py writes the core program (einsum_path.py, einsum_layout.py, semiring.py),
          einsum_bind.py compiles it; einsum_quick.py and einsum_stored.py are short cuts for calls that were met
          before, einsum_memory.py is for calls with a limit of memory, einsum_traced.py for calls in programs
trees     tree.py, tree_plan.py; tree_parse.py, tree_steps.py, tree_layout.py, tree_memory.py, tree_program.py,
          tree_text.py
programs  program.py with program_options.py, program_arguments.py, program_quick.py (short cuts) and program_tiles.py
          (tuned tile sizes); program_trace.py runs a function on the proxies of program_tracing.py,
          array_proxy.py and scalar_tracing.py
names     array_functions.py, fold_functions.py, control_functions.py, scalar_functions.py, annotations.py; what NumPy's
          functions are on proxies: numpy_functions.py, numpy_ufuncs.py, axis_functions.py, shape_functions.py,
          gather_functions.py, neighbour_functions.py; foreign_functions.py (how NumPy and torch call them)
"""
