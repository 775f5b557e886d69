"""Named choices, measured on a user's own data: thresholds of versions, and tile sizes.

tuner.py runs the candidates that search.py asks for (intervals.py: which thresholds make them; races.py: which of
two is faster); tiles.py searches tile sizes. store.py keeps what was found, text.py writes it beside a program,
lookup.py finds it again, by the keys of keys.py, in the files of places.py. bands.py and together.py are for data sets
that disagree.
"""
