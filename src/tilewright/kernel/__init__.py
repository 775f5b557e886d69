"""The kernel language and its spellings: OpenCL C, CUDA C++, LLVM; static checks on kernels.

the language  ir.py with dots.py and tiles.py; launch.py (a kernel with what its launch needs); traversal.py,
              decided.py and complex_pairs.py (walking, and simplifying, a kernel)
C             c_text.py, c_expressions.py, c_operators.py, c_names.py; c_dialect.py, opencl.py and cuda.py for what
              differs; nvrtc.py compiles CUDA
LLVM          llvm.py on llvm_emitter.py, llvm_expressions.py, llvm_operators.py and the other llvm_*.py, each for some
              operators; neighbours.py and constant_tests.py (which of LLVM's passes pay)
checks        checks.py (conflicts, coalescing, index types), warp.py, divergence.py, ranges.py
"""
