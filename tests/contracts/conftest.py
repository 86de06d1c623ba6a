"""Fixtures of the contracts: stand-in packages, imported for one test and gone after it."""

from builders.contracts.installing import install, written

__all__ = ["install", "written"]
