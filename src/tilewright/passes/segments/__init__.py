"""Folds, scans and histograms of segments, shared out among the workers of any device [S2]."""
