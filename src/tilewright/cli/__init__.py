"""The `tilewright` command."""
