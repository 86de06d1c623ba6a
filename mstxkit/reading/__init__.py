"""Files, processes, blocks to columns, columns to frames. `mstxkit.reading.run` is the way in."""
