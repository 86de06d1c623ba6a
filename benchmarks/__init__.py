"""Speed and memory of mstxkit against budgets: `python -m benchmarks [--check] [--only NAME]`."""
