"""Samples as Prometheus' text, by prometheus-client.

Source: prometheus-client 0.26.0, `prometheus_client/exposition.py` (`generate_latest`), `registry.py`.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

from . import samples
from .samples import MetricSample

MISSING = "prometheus-client is not installed here: pip install 'mstxkit[metrics]'"


class _Collected:
    """What prometheus-client collects from: these samples alone, nothing of the process."""

    def __init__(self, of: Sequence[MetricSample]) -> None:
        self._of = of

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        for family in samples.FAMILIES:
            metrics = GaugeMetricFamily(family.name, family.meaning, labels=("run", *family.labels))
            for sample in self._of:
                if sample.name == family.name:
                    metrics.add_metric(sample.labels, sample.value)
            if metrics.samples:
                yield metrics


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

    collected: Any = _Collected(of)
    return generate_latest(collected)
