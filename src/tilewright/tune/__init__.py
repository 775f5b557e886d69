"""Choices and their tuning: nothing is tuned yet; tile sizes come from the cost model in `passes.tile_choice`."""
