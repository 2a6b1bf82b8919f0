"""Older forms of operators brought to the newest one."""
