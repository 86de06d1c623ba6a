"""Speed and memory of mstxkit against budgets: `python -m benchmarks [--check] [--only NAME]`."""

import sys
from pathlib import Path

# Jobs and files that the tests build are measured too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
