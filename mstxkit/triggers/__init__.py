"""Triggers: each answers one question from values alone. One file each; no clock, no file, no state."""
