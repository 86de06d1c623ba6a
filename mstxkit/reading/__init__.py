"""The parts of the reader: files, processes, blocks to columns, columns to frames. `mstxkit.reader` is the way in."""
