"""The arithmetic of a group of layers, term by term, with this model's numbers in it."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.calculator.cache import entry_bytes
from kvviz.calculator.dtypes import DEFAULT_GROUP_SIZE, find_dtype
from kvviz.calculator.layers import LayerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One factor: what it counts (`name`, stable), its `value` and `unit`, and what it is in words.

    A value that is a sum has its `parts`.
    """

    name: str
    value: float
    unit: str
    text: str
    parts: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """The product of `terms`: `value` in `unit`. `text` is the whole line, such as `2 × 32 × 8 × 128 × 2 = 131,072`."""

    terms: tuple[Term, ...]
    value: int
    unit: str
    text: str


def bytes_per_token_formula(group: LayerGroup, dtype: str, group_size: int = DEFAULT_GROUP_SIZE) -> Formula:
    """Bytes of one token in all layers of a group. Raises `ConfigError` for a dtype that does not exist."""
    stored = find_dtype(dtype)
    terms = [Term(name="layers", value=group.layers, unit="layers", text="layers that cache")]
    if group.type != "mla_latent":
        terms.append(Term(name="kv_heads", value=group.kv_heads, unit="heads", text="K/V heads of a layer"))
    if stored.scale_bytes:
        terms.append(_vectors(group, dtype, group_size))
    else:
        terms += [*_numbers(group), Term(name="element_bytes", value=stored.bits / 8, unit="bytes", text=stored.about)]
    if group.type != "mla_latent" and group.k_dim == group.v_dim:
        terms.insert(0, Term(name="tensors", value=2, unit="tensors", text="K and V"))
    value = group.layers * entry_bytes(group, stored, group_size)
    return _formula(terms, value, "bytes per token")


def total_formula(group: LayerGroup, per_token: int, context: int, batch: int) -> Formula:
    """Bytes of a batch in all layers of a group: tokens of which there are entries, sequences, bytes of a token."""
    kept = group.kept(context)
    words = "tokens of each sequence" if kept == context else "tokens in the window"
    terms = [
        Term(name="bytes_per_token", value=per_token, unit="bytes", text="bytes of one token"),
        Term(name="tokens", value=kept, unit="tokens", text=words),
        Term(name="batch", value=batch, unit="sequences", text="sequences at once"),
    ]
    return _formula(terms, per_token * kept * batch, "bytes")


def _numbers(group: LayerGroup) -> list[Term]:
    """How many numbers a head has, for K and V or for either."""
    if group.type != "mla_latent" and group.k_dim == group.v_dim:
        return [Term(name="head_dim", value=group.k_dim, unit="numbers", text="numbers of a head")]
    key, value = ("latent", "rotary") if group.type == "mla_latent" else ("k_dim", "v_dim")
    words = {"latent": "the latent", "rotary": "the shared rotary part", "k_dim": "K", "v_dim": "V"}
    parts = tuple(
        Term(name=name, value=dim, unit="numbers", text=words[name])
        for name, dim in ((key, group.k_dim), (value, group.v_dim))
    )
    return [
        Term(name="entry", value=group.k_dim + group.v_dim, unit="numbers", text="numbers of an entry", parts=parts)
    ]


def _vectors(group: LayerGroup, dtype: str, group_size: int) -> Term:
    """Bytes of a grouped type: codes and scales of a head's K (and of its V, where they differ)."""
    stored = find_dtype(dtype)
    dims = [group.k_dim] if group.k_dim == group.v_dim and group.type != "mla_latent" else [group.k_dim, group.v_dim]
    codes, scales = (sum(sizes) for sizes in zip(*(stored.vector_bytes(dim, group_size) for dim in dims), strict=True))
    parts = (
        Term(name="codes", value=codes, unit="bytes", text=f"{sum(dims):,} numbers of {stored.bits} bits"),
        Term(name="scales", value=scales, unit="bytes", text="scales of their groups"),
    )
    return Term(
        name="vector_bytes", value=codes + scales, unit="bytes", text="bytes of a head, scales counted", parts=parts
    )


def _formula(terms: list[Term], value: int, unit: str) -> Formula:
    factors = " × ".join(_shown(term) for term in terms)
    return Formula(terms=tuple(terms), value=value, unit=unit, text=f"{factors} = {value:,} {unit}")


def _shown(term: Term) -> str:
    if term.parts:
        return f"({' + '.join(_shown(part) for part in term.parts)})"
    return f"{term.value:,.10g}"
