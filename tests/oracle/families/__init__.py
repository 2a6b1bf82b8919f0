"""How each operator of the inventory is drawn: one module per kind of operator, all in one table."""

from tests.oracle.families import (
    along_axes,
    classical,
    elementwise,
    gathering,
    graphs,
    movement,
    products,
    signals,
    stacked,
    windows,
)
from tests.oracle.families.table import FAMILIES

__all__ = [
    "FAMILIES",
    "along_axes",
    "classical",
    "elementwise",
    "gathering",
    "graphs",
    "movement",
    "products",
    "signals",
    "stacked",
    "windows",
]
