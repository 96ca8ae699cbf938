"""GPUs: memory, bandwidth and price per hour."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.errors import ConfigError
from kvviz.messages import shown

#: When the list was last compared with the makers' publications.
CHECKED = "2026-11-30"
_GIB = 2**30
#: Source of the prices: dollars per second, times 3,600.
_RUNPOD = "Runpod documentation, serverless flex price per second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU or other accelerator.

    - `memory_bytes`: makers write GB and mean 2³⁰ bytes. The small part that a driver reserves isn't subtracted.
    - `bandwidth`: maximum bytes per second between the GPU and its own memory.
    - `source`: the maker's document, as read on `checked`.
    - `price_per_hour`: in US dollars, from `price_source`; None: unknown.
    """

    card_id: str
    name: str
    memory_bytes: int
    bandwidth: float
    source: str
    checked: str = CHECKED
    price_per_hour: float | None = None
    price_source: str | None = None


def _card(
    card_id: str, name: str, gib: int, bandwidth: float, source: str, price: tuple[float, str] | None = None
) -> Card:
    dollars, price_source = price or (None, None)
    return Card(
        card_id=card_id,
        name=name,
        memory_bytes=gib * _GIB,
        bandwidth=bandwidth,
        source=source,
        price_per_hour=None if dollars is None else round(dollars, 4),
        price_source=price_source,
    )


def _by_second(dollars: float) -> tuple[float, str]:
    return dollars * 3_600, _RUNPOD


CARDS = (
    _card("a100-40", "A100 40 GB", 40, 1.555e12, "NVIDIA, A100 Tensor Core GPU data sheet (2020)"),
    _card(
        "a100-80", "A100 80 GB SXM", 80, 2.039e12, "NVIDIA, A100 Tensor Core GPU data sheet (2021)", _by_second(0.00076)
    ),
    _card("h100", "H100 SXM", 80, 3.35e12, "NVIDIA, H100 Tensor Core GPU data sheet (2023)", _by_second(0.00116)),
    _card("h200", "H200", 141, 4.8e12, "NVIDIA, H200 Tensor Core GPU data sheet (2024)", _by_second(0.00155)),
    _card(
        "b200",
        "B200",
        180,
        8.0e12,
        "NVIDIA, DGX B200 data sheet (2024): 1,440 GB and 64 TB/s for eight",
        _by_second(0.0024),
    ),
    _card("mi300x", "MI300X", 192, 5.3e12, "AMD, Instinct MI300X data sheet (2023)"),
    _card("l4", "L4", 24, 3.0e11, "NVIDIA, L4 Tensor Core GPU data sheet (2023)", _by_second(0.00019)),
    _card("l40s", "L40S", 48, 8.64e11, "NVIDIA, L40S GPU data sheet (2023)", _by_second(0.00053)),
    _card(
        "a10g",
        "A10G",
        24,
        6.0e11,
        "Amazon, EC2 G5 instances (2021)",
        (1.006, "Amazon, EC2 on demand, g5.xlarge in us-east-1, June 2026"),
    ),
    _card("t4", "T4", 16, 3.0e11, "NVIDIA, T4 Tensor Core GPU data sheet (2019): 300+ GB/s"),
    _card("rtx3090", "RTX 3090", 24, 9.36e11, "NVIDIA, GeForce RTX 3090 specifications (2020)", _by_second(0.00019)),
    _card("rtx4090", "RTX 4090", 24, 1.008e12, "NVIDIA, GeForce RTX 4090 specifications (2022)", _by_second(0.00031)),
    _card("rtx5090", "RTX 5090", 32, 1.792e12, "NVIDIA, GeForce RTX 5090 specifications (2025)"),
    _card(
        "m4-max",
        "Apple M4 Max, 128 GB",
        128,
        5.46e11,
        "Apple, MacBook Pro technical specifications (2024); shared with the CPU",
    ),
)


def find_card(card_id: str) -> Card:
    """The GPU with that id. Raises `ConfigError`."""
    for card in CARDS:
        if card.card_id == card_id:
            return card
    names = ", ".join(card.card_id for card in CARDS)
    raise ConfigError(f"Unknown GPU {shown(card_id)}; choose one of {names}.", setting="card")
