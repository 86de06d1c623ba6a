"""Fixtures of the process tests: small file systems."""

from __future__ import annotations

from builders.mounts import frozen_disk, mount

__all__ = ["frozen_disk", "mount"]
