"""The rewrite engine: rules (one equation each), strategies that combine them, derivations that record them.

rule.py, strategy.py and derivation.py are these; names.py remembers which names a node uses, best_rows.py tells what
folds keep of two rows; rules/ has the rules.
"""
