"""What was decided and why, as text."""
