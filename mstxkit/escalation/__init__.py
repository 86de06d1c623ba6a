"""Escalation: requests for a deeper profile of a stage, and who records what when (docs/internals/control.md)."""
