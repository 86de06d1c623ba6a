"""Numbers as a page holds them: arrays of few bytes each, and many steps or ranks put together where there are many."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt


def packed(values: Any, kind: str) -> dict[str, Any]:
    """An array for the page: `k` its kind (i1, u1, u2, u4, f4), `b` its bytes in base64, `s` its shape."""
    array = np.ascontiguousarray(np.asarray(values).astype(f"<{kind}"))
    return {"k": kind, "b": base64.b64encode(array.tobytes()).decode("ascii"), "s": list(array.shape)}


def percents(ratios: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Ratios as whole percents, -100 to 126; 127 where there is none."""
    whole = np.where(np.isfinite(ratios), np.clip(np.round(100 * np.nan_to_num(ratios)), -100, 126), 127)
    return packed(whole, "i1")


def bounds(count: int, at_most: int) -> npt.NDArray[np.int64]:
    """Where each of at most so many equal parts of `count` things begins, and the end."""
    return np.unique(np.linspace(0, count, min(count, at_most) + 1).round().astype(np.int64))


def means(values: npt.NDArray[np.float64], edges: npt.NDArray[np.int64], axis: int = 0) -> npt.NDArray[np.float64]:
    """The mean of each part, along one axis; NaN counts as nothing."""
    seen = np.isfinite(values)
    sums = np.add.reduceat(np.where(seen, values, 0.0), edges[:-1], axis=axis)
    counts = np.add.reduceat(seen.astype(float), edges[:-1], axis=axis)
    with np.errstate(all="ignore"):
        return np.asarray(sums / counts)


def farthest(values: npt.NDArray[np.float64], edges: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Of each part of rows what is farthest from 0, so that one rank of many is still seen; NaN where nothing is."""
    seen = np.where(np.isfinite(values), values, 0.0)
    high, low = (each.reduceat(seen, edges[:-1]) for each in (np.maximum, np.minimum))
    has_any = np.maximum.reduceat(np.isfinite(values), edges[:-1])
    return np.asarray(np.where(has_any, np.where(high >= -low, high, low), np.nan))
