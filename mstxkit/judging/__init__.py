"""Judging: who made the others wait, in which stage, and why; of values and files, never in a training process."""
