"""Devices, memory, caches, and the execution of compiled programs."""
