"""``python -m ingot.demo``: the whole platform, used as a user would use it, and measured."""
