"""What is tried without waiting."""


class WouldWait(Exception):
    """Who must not wait would have to; nothing was done."""
