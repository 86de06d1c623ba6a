"""Samples as gauges of Ray's own metrics: no port, scraped where Ray is scraped already, as `ray_mstxkit_…`.

From the actor that judges, never from a training process. Where Ray has no dashboard, nothing comes of them, and
nothing is held up either.

Source: ray 2.42.1 and 2.60.0, `ray/util/metrics.py`, `Gauge(name, description, tag_keys)`, `set(value, tags)`. A gauge
keeps what it was set to: Ray has no way to take a series back, so what is gone is set to 0.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Sequence

from . import samples
from .samples import MetricSample

# Series that were ever set: each stays with Ray for the life of the actor.
EVER_AT_MOST = 4_000


class RayGauges:
    """Those of one job."""

    def __init__(self) -> None:
        self._gauges: dict[str, Any] = {}
        self._values: dict[tuple[str, tuple[str, ...]], float] = {}
        self.left_out = 0

    def show(self, of: Sequence[MetricSample]) -> None:
        """Set what has changed. *Cost*: about 5 us a change."""
        now = {(sample.name, sample.labels): sample.value for sample in of}
        gone = {key: 0.0 for key, value in self._values.items() if key not in now and value}
        for key, value in (*gone.items(), *now.items()):
            if self._values.get(key) == value:
                continue
            if key not in self._values and len(self._values) >= EVER_AT_MOST:
                self.left_out += 1
                continue
            self._values[key] = value
            name, labels = key
            meaning, tag_keys = samples.BY_NAME[name].meaning, ("run", *samples.BY_NAME[name].labels)
            if name not in self._gauges:
                metrics = import_module("ray.util.metrics")
                self._gauges[name] = metrics.Gauge(name, description=meaning, tag_keys=tag_keys)
            self._gauges[name].set(value, tags=dict(zip(tag_keys, labels)))
