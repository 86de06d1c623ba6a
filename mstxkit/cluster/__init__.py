"""A job as a whole: what its hosts send on, over Ray or the run folder, and who judges it."""
