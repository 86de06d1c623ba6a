"""Two runs, or two parts of one, side by side: what became slower, by how much, since when, and what else changed."""
