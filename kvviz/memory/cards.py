"""Cards: how much memory an accelerator has, and how fast it reads it."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.errors import ConfigError

#: When the figures of the list were last compared with what the makers publish.
CHECKED = "2026-11-30"
_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One accelerator. `memory_bytes`: makers write GB and build 2³⁰; a driver keeps a little of it for itself, which
    is not taken off. `bandwidth`: bytes per second at most, between the card's own memory and its chip. `source`: the
    maker's document, as read on `checked`.
    """

    card_id: str
    name: str
    memory_bytes: int
    bandwidth: float
    source: str
    checked: str = CHECKED


CARDS = (
    Card(
        card_id="a100-40",
        name="A100 40 GB",
        memory_bytes=40 * _GIB,
        bandwidth=1.555e12,
        source="NVIDIA, A100 Tensor Core GPU data sheet (2020)",
    ),
    Card(
        card_id="a100-80",
        name="A100 80 GB SXM",
        memory_bytes=80 * _GIB,
        bandwidth=2.039e12,
        source="NVIDIA, A100 Tensor Core GPU data sheet (2021)",
    ),
    Card(
        card_id="h100",
        name="H100 SXM",
        memory_bytes=80 * _GIB,
        bandwidth=3.35e12,
        source="NVIDIA, H100 Tensor Core GPU data sheet (2023)",
    ),
    Card(
        card_id="h200",
        name="H200",
        memory_bytes=141 * _GIB,
        bandwidth=4.8e12,
        source="NVIDIA, H200 Tensor Core GPU data sheet (2024)",
    ),
    Card(
        card_id="b200",
        name="B200",
        memory_bytes=180 * _GIB,
        bandwidth=8.0e12,
        source="NVIDIA, DGX B200 data sheet (2024): 1,440 GB and 64 TB/s for eight",
    ),
    Card(
        card_id="mi300x",
        name="MI300X",
        memory_bytes=192 * _GIB,
        bandwidth=5.3e12,
        source="AMD, Instinct MI300X data sheet (2023)",
    ),
    Card(
        card_id="rtx4090",
        name="RTX 4090",
        memory_bytes=24 * _GIB,
        bandwidth=1.008e12,
        source="NVIDIA, GeForce RTX 4090 specifications (2022)",
    ),
    Card(
        card_id="l4",
        name="L4",
        memory_bytes=24 * _GIB,
        bandwidth=3.0e11,
        source="NVIDIA, L4 Tensor Core GPU data sheet (2023)",
    ),
    Card(
        card_id="m4-max",
        name="Apple M4 Max, 128 GB",
        memory_bytes=128 * _GIB,
        bandwidth=5.46e11,
        source="Apple, MacBook Pro technical specifications (2024); shared with the CPU",
    ),
)


def find_card(card_id: str) -> Card:
    """The card of that id. Raises `ConfigError`."""
    for card in CARDS:
        if card.card_id == card_id:
            return card
    names = ", ".join(card.card_id for card in CARDS)
    raise ConfigError(f"There is no card {card_id[:40]!r} here; choose one of {names}.", setting="card")
