"""Attention as one nest: what it is, its products, its softmax, and the order of blocks."""
