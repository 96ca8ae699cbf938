"""The figures of a comparison, from its `lane_measured` events. `static/js/core/lane-figures.js` computes the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def lane_figures(header: Mapping[str, Any], records: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """The figures of each lane in a header, for the latest request; see docs/compare.md.

    `records`: `[seq, t_us, event]`, with the event as JSON. All figures of a lane without measurements are None.
    """
    events = [event for _, _, event in records if event["type"] in ("lane_measured", "needle_sought")]
    latest = max((event["request_id"] for event in events), default=None)
    found = []
    for lane in header["lanes"]:
        of_lane = [e for e in events if e["lane"] == lane["index"] and e["request_id"] == latest]
        measured = [event for event in of_lane if event["type"] == "lane_measured"]
        needle = next((event for event in of_lane if event["type"] == "needle_sought"), None)
        about = {name: lane[name] for name in ("name", "title", "family", "exact", "bytes_per_token")}
        sought = {"needle_found": needle["found"] if needle else None, "answer": needle["answer"] if needle else None}
        found.append({**about, **_figures(measured), **sought})
    return found


def _figures(measured: list[dict[str, Any]]) -> dict[str, Any]:
    last = measured[-1] if measured else {}
    later_us = [event["step_us"] for event in measured[1:]]
    return {
        "num_tokens": len(measured),
        "kv_projections": last.get("num_projections"),
        "ms_per_token": statistics.median(later_us) / 1_000 if later_us else None,
        "first_token_ms": measured[0]["step_us"] / 1_000 if measured else None,
        "num_hit_tokens": last.get("num_hit_tokens"),
        "mean_kl": statistics.fmean(event["kl"] for event in measured) if measured else None,
        "top1_agreement": statistics.fmean(event["agrees"] for event in measured) if measured else None,
        "first_divergence": next((index for index, event in enumerate(measured) if not event["agrees"]), None),
        "max_abs_logit_diff": max((event["max_abs_diff"] for event in measured), default=None),
        "perplexity": _perplexity([event["nll"] for event in measured]),
        "held_bytes": last.get("held_bytes"),
        "read_bytes": last.get("read_bytes"),
        "copied_bytes": last.get("copied_bytes"),
        "kept_share": last.get("kept_share"),
        "text": "".join((event["free_piece"] or {"text": ""})["text"] for event in measured),
    }


def _perplexity(nlls: list[float]) -> float | None:
    """exp of the mean; None for an empty list or on overflow."""
    try:
        return math.exp(statistics.fmean(nlls)) if nlls else None
    except OverflowError:
        return None
