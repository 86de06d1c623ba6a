"""Samples as Prometheus' text, by prometheus-client.

Source: prometheus-client 0.26.0, `prometheus_client/exposition.py` (`generate_latest`), `registry.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Sequence

from . import samples
from .samples import MetricSample

MISSING = "prometheus-client is not installed here: pip install 'mstxkit[metrics]'"


def is_possible() -> bool:
    """Is prometheus-client there?"""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        return False
    return True


def text(of: Sequence[MetricSample]) -> bytes:
    """The page. ImportError: there is no prometheus-client. *Cost*: about 10 us a sample."""
    from prometheus_client import generate_latest
    from prometheus_client.core import GaugeMetricFamily

    families = []
    for family in samples.FAMILIES:
        metrics = GaugeMetricFamily(family.name, family.meaning, labels=("run", *family.labels))
        for sample in of:
            if sample.name == family.name:
                metrics.add_metric(sample.labels, sample.value)
        families += [metrics] if metrics.samples else []
    # What is collected from: these samples alone, nothing of the process.
    collected: Any = SimpleNamespace(collect=lambda: families)
    return generate_latest(collected)
