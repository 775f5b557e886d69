"""The rewrite engine: rules (one equation each), strategies that combine them, derivations that record them."""
