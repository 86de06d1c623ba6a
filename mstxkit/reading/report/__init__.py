"""What `mstxkit report` shows: a run summed up in plain values, and as text for a terminal. Names are escaped."""
