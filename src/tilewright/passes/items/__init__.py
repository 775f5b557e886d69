"""What runs inside one work item: core code as sequential loops over scalars and memory of its own.

the ground  scalar_values.py (`KernelBuilder`, scalars), launch_writer.py (a kernel of a contraction), lower_scalar.py,
            item_memory.py (`Item`: arrays, loops), checks.py, upper_bounds.py, speculation.py, rounds_left.py,
            attempts.py
constructs  lower_items.py, joined_parts.py, lower_loops.py with all_replaced.py, loop_turns.py, lane_arrays.py and
            split_ranges.py (loop_cuts.py, loop_checks.py, renaming.py); changed_ranges.py, lower_folds.py,
            lower_segments.py, lower_columns.py; accumulators.py
folds       sum_trees.py, fold_groups.py, first_best.py
"""
