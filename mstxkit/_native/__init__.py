"""The hot path in C: `hot` is built from `hot.c` where a compiler is found; without it mstxkit runs on its Python twin."""
