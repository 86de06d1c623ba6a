"""Fixtures of the tests of patching: a small framework, patched and put back, before or after it is imported."""

from builders.acme import acme, install, when

__all__ = ["acme", "install", "when"]
