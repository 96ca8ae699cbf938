"""The size of a cache in bytes: per group of layers and in total, per token and per batch, with formulas."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvviz.calculator.layers import Geometry, LayerGroup
from kvviz.calculator.settings import DEFAULT_GROUP_SIZE, Dtype, Settings, find_dtype

#: The sizes that `GroupBytes` and `CacheBytes` share.
SIZES = (
    "bytes_per_token",
    "marginal_bytes_per_token",
    "total_bytes",
    "total_bytes_blocks",
    "total_bytes_window_ignored",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBytes:
    """Bytes of all layers of one group.

    - `bytes_per_token`: added by one token while the window isn't full.
    - `marginal_bytes_per_token`: added by one token once the window is full.
    - `total_bytes`, `total_bytes_blocks`, `total_bytes_window_ignored`: for `batch` sequences of `context` tokens each;
      exactly, rounded up to whole blocks of `block_size` tokens, and without windows.
    """

    group: LayerGroup
    bytes_per_token: int
    marginal_bytes_per_token: int
    total_bytes: int
    total_bytes_blocks: int
    total_bytes_window_ignored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBytes:
    """Bytes of a whole cache, summed over its groups.

    The totals exclude `fixed_state_bytes` (for the batch) and `indexer_bytes_per_token`. `uncompressed_bytes_per_token`
    is the size if K and V of every head were stored instead of the latent; None without a latent.
    """

    groups: tuple[GroupBytes, ...]
    fixed_state_bytes: int
    indexer_bytes_per_token: int
    uncompressed_bytes_per_token: int | None
    bytes_per_token: int = field(init=False)
    marginal_bytes_per_token: int = field(init=False)
    total_bytes: int = field(init=False)
    total_bytes_blocks: int = field(init=False)
    total_bytes_window_ignored: int = field(init=False)

    def __post_init__(self) -> None:
        for name in SIZES:
            object.__setattr__(self, name, sum(getattr(group, name) for group in self.groups))


def entry_bytes(
    group: LayerGroup, dtype: Dtype, group_size: int = DEFAULT_GROUP_SIZE, *, heads: int | None = None
) -> int:
    """Bytes of one token in one layer, including scales. `heads` overrides the number of KV heads."""
    key, value = (sum(dtype.vector_bytes(dim, group_size)) for dim in (group.k_dim, group.v_dim))
    return (group.kv_heads if heads is None else heads) * (key + value)


def rounded(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size) * block_size


def cache_bytes(
    geometry: Geometry,
    *,
    context: int,
    batch: int = 1,
    dtype: str = "bf16",
    group_size: int = DEFAULT_GROUP_SIZE,
    block_size: int = 16,
) -> CacheBytes:
    """The cache size of `batch` sequences of `context` tokens each. Raises `ConfigError` for an unknown dtype.

    The arithmetic is in docs/memory.md.
    """
    stored, limit = find_dtype(dtype), geometry.max_context

    def of_group(group: LayerGroup) -> GroupBytes:
        per_token = group.layers * entry_bytes(group, stored, group_size)
        kept = group.kept(context)
        # A window at least as long as the model's maximum context never fills, so it has no effect.
        is_filled = group.window is not None and (limit is None or group.window < limit)
        return GroupBytes(
            group=group,
            bytes_per_token=per_token,
            marginal_bytes_per_token=0 if is_filled else per_token,
            total_bytes=batch * per_token * kept,
            total_bytes_blocks=batch * per_token * rounded(kept, block_size),
            total_bytes_window_ignored=batch * per_token * context,
        )

    groups = tuple(of_group(group) for group in geometry.groups)
    return CacheBytes(
        groups=groups,
        fixed_state_bytes=batch * geometry.state.num_bytes if geometry.state else 0,
        indexer_bytes_per_token=indexer_bytes(geometry, stored, group_size),
        uncompressed_bytes_per_token=_uncompressed(geometry, stored, group_size),
    )


def cache_of(
    geometry: Geometry, settings: Settings, *, context: int | None = None, batch: int | None = None
) -> CacheBytes:
    """`cache_bytes` with the values of `settings`. `context` and `batch` override them."""
    return cache_bytes(
        geometry,
        context=context or settings.context,
        batch=batch or settings.batch,
        dtype=settings.dtype,
        group_size=settings.group_size,
        block_size=settings.block_size,
    )


def indexer_bytes(geometry: Geometry, dtype: Dtype, group_size: int = DEFAULT_GROUP_SIZE) -> int:
    """Bytes per token of the indexer keys, which sparse attention uses to select tokens; 0 without an indexer."""
    if geometry.indexer is None:
        return 0
    layers, dim = geometry.indexer
    return layers * sum(dtype.vector_bytes(dim, group_size))


def _uncompressed(geometry: Geometry, dtype: Dtype, group_size: int) -> int | None:
    """Bytes per token if K and V of every head were stored instead of the latent; None without a latent."""
    sizes = [(group.layers, group.uncompressed) for group in geometry.groups if group.type == "mla_latent"]
    if not sizes or any(size is None for _, size in sizes):
        return None
    return sum(
        layers * heads * sum(sum(dtype.vector_bytes(dim, group_size)) for dim in dims)
        for layers, (heads, *dims) in ((layers, size) for layers, size in sizes if size is not None)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One factor of a formula. `name` is stable, `text` describes the factor.

    A factor that is a sum lists its summands in `parts`.
    """

    name: str
    value: float
    unit: str
    text: str
    parts: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """The product of `terms`: `value` in `unit`. `text` is the full line, such as `2 × 32 × 8 × 128 × 2 = 131,072`."""

    terms: tuple[Term, ...]
    value: int
    unit: str
    text: str


def bytes_per_token_formula(group: LayerGroup, dtype: str, group_size: int = DEFAULT_GROUP_SIZE) -> Formula:
    """Bytes per token in all layers of a group. Raises `ConfigError` for an unknown dtype."""
    stored = find_dtype(dtype)
    terms = [Term(name="layers", value=group.layers, unit="layers", text="layers with a KV cache")]
    if group.type != "mla_latent":
        terms.append(Term(name="kv_heads", value=group.kv_heads, unit="heads", text="KV heads per layer"))
    if stored.scale_bytes:
        terms.append(_vectors(group, dtype, group_size))
    else:
        terms += [*_numbers(group), Term(name="element_bytes", value=stored.bits / 8, unit="bytes", text=stored.about)]
    if group.type != "mla_latent" and group.k_dim == group.v_dim:
        terms.insert(0, Term(name="tensors", value=2, unit="tensors", text="K and V"))
    value = group.layers * entry_bytes(group, stored, group_size)
    return _formula(terms, value, "bytes per token")


def total_formula(group: LayerGroup, per_token: int, context: int, batch: int) -> Formula:
    """Bytes of a batch in all layers of a group: bytes per token × cached tokens × sequences."""
    kept = group.kept(context)
    words = "tokens per sequence" if kept == context else "tokens in the window"
    terms = [
        Term(name="bytes_per_token", value=per_token, unit="bytes", text="bytes per token"),
        Term(name="tokens", value=kept, unit="tokens", text=words),
        Term(name="batch", value=batch, unit="sequences", text="sequences in the batch"),
    ]
    return _formula(terms, per_token * kept * batch, "bytes")


def _numbers(group: LayerGroup) -> list[Term]:
    """Elements per head if K and V have the same dimension, else elements per entry."""
    if group.type != "mla_latent" and group.k_dim == group.v_dim:
        return [Term(name="head_dim", value=group.k_dim, unit="elements", text="head dimension")]
    key, value = ("latent", "rotary") if group.type == "mla_latent" else ("k_dim", "v_dim")
    words = {"latent": "latent", "rotary": "shared rotary part", "k_dim": "K", "v_dim": "V"}
    parts = tuple(
        Term(name=name, value=dim, unit="elements", text=words[name])
        for name, dim in ((key, group.k_dim), (value, group.v_dim))
    )
    return [
        Term(name="entry", value=group.k_dim + group.v_dim, unit="elements", text="elements per entry", parts=parts)
    ]


def _vectors(group: LayerGroup, dtype: str, group_size: int) -> Term:
    """Bytes per head of a dtype with scales: codes and scales of K, and of V if its dimension differs."""
    stored = find_dtype(dtype)
    dims = [group.k_dim] if group.k_dim == group.v_dim and group.type != "mla_latent" else [group.k_dim, group.v_dim]
    codes, scales = (sum(sizes) for sizes in zip(*(stored.vector_bytes(dim, group_size) for dim in dims), strict=True))
    parts = (
        Term(name="codes", value=codes, unit="bytes", text=f"{sum(dims):,} elements of {stored.bits} bits"),
        Term(name="scales", value=scales, unit="bytes", text="scales of the groups"),
    )
    return Term(
        name="vector_bytes", value=codes + scales, unit="bytes", text="bytes per head, including scales", parts=parts
    )


def _formula(terms: list[Term], value: int, unit: str) -> Formula:
    factors = " × ".join(_shown(term) for term in terms)
    return Formula(terms=tuple(terms), value=value, unit=unit, text=f"{factors} = {value:,} {unit}")


def _shown(term: Term) -> str:
    if term.parts:
        return f"({' + '.join(_shown(part) for part in term.parts)})"
    return f"{term.value:,.10g}"
