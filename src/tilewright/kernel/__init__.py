"""The kernel language and its spellings: OpenCL C, CUDA C++, LLVM; static checks on kernels."""
