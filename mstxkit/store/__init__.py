"""What lies in a run folder: the name and the format of every file, written and read by the same module."""
