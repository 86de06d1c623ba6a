"""A rank on duty: the threads, hooks and messages between its machine and the rest of the run."""
