"""The `ingot` command."""
