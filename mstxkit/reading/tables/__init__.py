"""Tables of a run that are computed from its rows: stages, processes, endings, escalations."""
