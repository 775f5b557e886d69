"""Machines as numbers: levels, limits and speeds, occupancy, detection, and machines by name."""
