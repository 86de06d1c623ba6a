"""The hot path in C: `hot` is built from `hot.c` where a compiler is found; without it the Python twin serves."""
