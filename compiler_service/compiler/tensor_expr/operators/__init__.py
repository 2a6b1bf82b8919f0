"""The operator inventory: one module per family, each with its table ``OPERATORS``."""
