"""Several statements in one pass over the same rows, and scans in vectors, on a CPU."""
