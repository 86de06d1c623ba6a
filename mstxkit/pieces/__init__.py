"""Pieces of a stage (micro-batch, mini-batch, decode step): what they are, and when they begin and end."""
