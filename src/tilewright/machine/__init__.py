"""Machines as numbers: no pass asks what a device is, only how large and how fast it is.

model.py (`Machine`), named.py (machines that need not be there), detect.py, cores.py, processors.py (what LLVM
makes code for) with tile_permission.py, forking.py, llvm_lock.py, occupancy.py, paces.py (what the cost models of
contractions count with)
"""
