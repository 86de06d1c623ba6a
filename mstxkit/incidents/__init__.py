"""The watchman of a host: hangs and deaths of a run's processes, seen from a process of its own, and what is told."""
