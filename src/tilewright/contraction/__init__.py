"""The canonical contraction: its form, its recognition, and rewrites on its dimensions."""
