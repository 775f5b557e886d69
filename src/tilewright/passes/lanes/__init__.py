"""Code of scalars in the lanes of vectors: neighbouring points together."""
