"""How far aligned times are off, and how often the stated bound holds: hosts half a second apart that drift by 50 ppm.

The ways are simulated (`tests/judging/test_clock_bounds.py`): a LAN with 60 us each way, 80 us of jitter and one
message in ten held up for up to 20 ms; one with ways that differ by 340 us; a far network. 200 hosts each.
"""

from __future__ import annotations

import sys
import time

from .harness import HERE, Row

VARIANTS: dict[str, dict[str, str]] = {"lan": {}, "one_way_slower": {}, "far": {}}
HOSTS, BURSTS = 200, 14


def measure(variant: str) -> list[Row]:
    """Microseconds, and the share of times whose error is within its bound."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import numpy as np
    from judging.test_clock_bounds import WAYS, Host

    way = {"lan": WAYS["a LAN"], "one_way_slower": WAYS["one way slower"], "far": WAYS["a far network"]}[variant]
    began = time.process_time()
    hosts = [Host((1, number), way).run(BURSTS) for number in range(HOSTS)]
    cpu_ms = (time.process_time() - began) * 1000 / (HOSTS * BURSTS * 2)
    errors, bounds = (np.concatenate([getattr(host, name) for host in hosts]) for name in ("errors", "bounds"))
    note = f"{len(errors)} times of {HOSTS} hosts; bound {np.median(bounds) / 1000:.0f} us in the middle"
    return [
        Row(f"clocks.{variant}_p50_us", float(np.median(errors)) / 1000, "us"),
        Row(f"clocks.{variant}_p95_us", float(np.percentile(errors, 95)) / 1000, "us", note=note),
        Row(f"clocks.{variant}_bound_holds", float(np.mean(errors <= bounds + 1)), "share"),
        Row(f"clocks.{variant}_cpu_ms", cpu_ms, "ms", note="of an exchange, the simulation included"),
    ]
