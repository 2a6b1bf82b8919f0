"""The measuring server of a device: it needs Python and what the base of this distribution brings, and no compiler."""
