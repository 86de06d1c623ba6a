"""The public marking names, decoration, and what generated wrappers refer to."""
