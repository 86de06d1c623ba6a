"""The hot path: in C (`native`), or the same in Python (`twin`); `choose` takes one of them for this process."""
