"""Core programs into better core programs: simplification, fusion, what varies with what."""
