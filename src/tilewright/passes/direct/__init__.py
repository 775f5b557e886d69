"""The direct CPU form of a contraction: register tiles fed from the operands' own strides [S1].

decisions   form.py, choice.py (by the model of cost.py, past_caches.py and traffic.py) with register_tiles.py,
            short_sums.py, points.py (batches, and slices in pieces), onward.py (rows that go on) and in_order.py (outer
            products)
code        kernel.py with writer.py; panels.py (what is packed), tile.py (the sum) with shared_vectors.py, pairs.py
            (complex numbers), next_pieces.py, next_points.py and sum_pieces.py (in which order); store.py, collect.py
            and collected_boxes.py (results)
"""
