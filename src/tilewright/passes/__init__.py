"""Programs and contractions step by step towards kernels: simplify, fuse, tile, lower; pipelines lists them."""
