"""What a viewer must get to see in each scenario, asked of the events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.scenario_page import Records, events


def lookups(records: Records) -> list[dict[str, Any]]:
    return events(records, "prefix_looked_up")


def most_together(records: Records) -> int:
    return max(len(event["chunks"]) for event in events(records, "step_scheduled"))


def largest_chunk_beside_decodes(records: Records) -> int:
    """Most prompt tokens of one request in a step in which others decode."""
    sizes = [0]
    for event in events(records, "step_scheduled"):
        if any(chunk["kind"] == "decode" for chunk in event["chunks"]):
            sizes += [chunk["num_tokens"] for chunk in event["chunks"] if chunk["kind"] == "prefill"]
    return max(sizes)


#: What a viewer must get to see in each.
SHOWS: dict[str, Callable[[Records], bool]] = {
    "first-minute": lambda records: bool(events(records, "block_evicted") and events(records, "miss_measured")),
    "long-prompt": lambda records: (
        sum(chunk["kind"] == "prefill" for event in events(records, "step_scheduled") for chunk in event["chunks"]) == 3
    ),
    "shared_prompt": lambda records: (
        [look["num_hit_tokens"] > 0 for look in lookups(records)] == [False, True, True, True]
        and most_together(records) == 4
    ),
    "changed_letter": lambda records: (
        lookups(records)[1]["num_hit_tokens"] > lookups(records)[2]["num_hit_tokens"]
        and lookups(records)[2]["reason"]["code"] == "differs"
    ),
    "changed_dtype": lambda records: (
        lookups(records)[0]["reason"]["code"] == "other_keys"
        and lookups(records)[0]["reason"]["keys"] == ["dtype"]
        and lookups(records)[1]["num_hit_tokens"] > 0
    ),
    "long_prompt_chunked": lambda records: 0 < largest_chunk_beside_decodes(records) <= 32,
    "long_prompt_whole": lambda records: largest_chunk_beside_decodes(records) > 128,
    "preempt_recompute": lambda records: (
        {event["reason"]["code"] for event in events(records, "request_preempted")} == {"recompute"}
    ),
    "preempt_swap": lambda records: (
        bool(events(records, "blocks_swapped_out")) and bool(events(records, "blocks_swapped_in"))
    ),
    "fork_tree": lambda records: (
        len(events(records, "request_forked")) == 3 and len(events(records, "block_copied")) >= 3
    ),
    "offload": lambda records: bool(events(records, "block_offloaded")) and bool(events(records, "block_fetched")),
    "twelve_users": lambda records: len(events(records, "request_added")) == 12 and most_together(records) >= 6,
    "tenant_salts": lambda records: (
        [look["num_hit_tokens"] > 0 for look in lookups(records)] == [False, False, True]
        and lookups(records)[1]["reason"]["keys"] == ["salt"]
    ),
}
