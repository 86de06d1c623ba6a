"""Fixtures of the tests of patches: a small framework, patched and put back."""

from builders.acme import acme, install

__all__ = ["acme", "install"]
