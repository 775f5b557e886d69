"""What runs inside one work item: core code as sequential loops over scalars and memory of its own.

the ground  scalar_values.py (`KernelBuilder`, scalars), lower_scalar.py, item_memory.py (`Item`: arrays, loops),
            checks.py, upper_bounds.py, speculation.py, rounds_left.py, attempts.py
constructs  lower_items.py, lower_loops.py with all_replaced.py and loop_turns.py, inner_maps.py with
            changed_ranges.py, lower_folds.py, lower_segments.py, lower_reduction.py; accumulators.py
a kernel    lower_general.py (points), nests.py; point_kernels.py; point_loops.py with split_ranges.py, loop_cuts.py
            and renaming.py
folds on a  sum_trees.py, fold_groups.py, lower_order.py, lower_columns.py, short_folds.py,
  CPU       array_folds.py with map_folds.py, first_best.py, register_folds.py
after that  dead_stores.py, waiting_last.py, unread_iotas.py; whole_loops.py (loops of the host as one kernel)
"""
