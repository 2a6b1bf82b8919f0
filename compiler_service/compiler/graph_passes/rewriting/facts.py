"""What can be true of a graph and what passes need: each pass declares which of these it needs, gives and forbids, and a pipeline
refuses an order in which one comes too early or too late."""

from __future__ import annotations

import enum


class GraphFact(enum.StrEnum):
    """True of a graph from the pass that gives it onwards."""

    OPERATORS_EXPANDED = "operators-expanded"  # recurrent operators are graphs of others
    LOOPS_LOWERED = "loops-lowered"  # numbers of iterations are symbols
    SHAPES_FOLDED = "shapes-folded"  # operands that say a shape are constants or dims
    FLOATS_WIDENED = "floats-widened"  # nothing but inputs, outputs and tables is of 16 bits
    BYTES_MULTIPLIED = "bytes-multiplied"  # products that the target computes in bytes are such
    CONSTANTS_FOLDED = "constants-folded"  # weights are constants, not arithmetic on constants
    WEIGHTS_DEQUANTIZED = "weights-dequantized"  # and nothing tells that they were bytes
    ALGEBRA_SIMPLIFIED = "algebra-simplified"  # what is spelled out in several ways stands there in one
    CHANNELS_LAST = "channels-last"  # convolutions and pools have the layout that code is made for
    WEIGHTS_HALVED = "weights-halved"  # some are stored as halves, behind a Cast that must stay
    GROUPED = "grouped"  # every operator is in an ingot.Group, one kernel
    OUTPUTS_APART = "outputs-apart"  # each output has memory of its own
    PARTS_PLACED = "parts-placed"  # operands of concatenations lie where they belong
    CONCATENATIONS_SPLIT = "concatenations-split"  # kernels of concatenations have few operands
    ROWS_PADDED = "rows-padded"  # every stride is settled


Facts = frozenset[GraphFact]
