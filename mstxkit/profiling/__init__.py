"""Profiler sessions: what is recorded beside the ranges, in which depth, and who may record."""
