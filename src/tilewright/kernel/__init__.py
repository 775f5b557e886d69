"""The kernel language and its spellings: OpenCL C, CUDA C++, LLVM; static checks on kernels.

the language  ir.py; launch.py (a kernel with what its launch needs)
C             c_text.py, c_expressions.py, c_operators.py, c_names.py; c_dialect.py, opencl.py and cuda.py for
              what differs; nvrtc.py compiles CUDA
LLVM          llvm.py, llvm_expressions.py, llvm_operators.py and the other llvm_*.py; neighbours.py
checks        checks.py (conflicts, coalescing, index types), warp.py, divergence.py, ranges.py
"""
