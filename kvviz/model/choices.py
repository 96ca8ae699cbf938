"""Choices for a lane: codecs and forgetting policies that describe themselves, so that menus are derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, TypeVar

from kvviz.errors import ConfigError

Family = Literal["heads", "latent", "bits", "forgetting", "allocation"]

C = TypeVar("C", bound="Choice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A whole-number option of a choice, with its limits. `title` is its label on the page."""

    name: str
    title: str
    default: int
    low: int
    high: int


class Choice:
    """A way to store a cache. Subclasses set the class variables; `options` become attributes of that name.

    `value` is the option that `name=N` sets. `exact`: the model's output is unchanged. `about`: one sentence for the
    page. Raises `ConfigError` for an option that is unknown or out of range.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[Family]
    about: ClassVar[str]
    exact: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = ()
    value: ClassVar[str | None] = None

    def __init__(self, /, **given: int) -> None:
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                words = ", ".join(known) or "none"
                raise ConfigError(f"The lane {self.name} has no option {name!r} (options: {words}).", setting=self.name)
        for option in self.options:
            number = given.get(option.name, option.default)
            if not isinstance(number, int) or isinstance(number, bool) or not option.low <= number <= option.high:
                raise ConfigError(
                    f"{option.name} of the lane {self.name} must be a whole number from {option.low} to {option.high} "
                    f"(got {number!r}).",
                    setting=option.name,
                    low=option.low,
                    high=option.high,
                )
            setattr(self, option.name, number)

    @property
    def chosen(self) -> dict[str, int]:
        return {option.name: getattr(self, option.name) for option in self.options}

    @classmethod
    def describe(cls) -> dict[str, Any]:
        return {
            "name": cls.name,
            "title": cls.title,
            "family": cls.family,
            "about": cls.about,
            "exact": cls.exact,
            "value": cls.value,
            "options": [asdict(option) for option in cls.options],
        }


class Registry(dict[str, type[C]]):
    """Choices by name. Use `register` as a decorator."""

    def register(self, choice: type[C]) -> type[C]:
        assert choice.name not in self, f"two choices are named {choice.name}"
        self[choice.name] = choice
        return choice

    def make(self, name: str, options: Mapping[str, int]) -> C:
        """Create the choice with that name and these options. Raises `ConfigError`."""
        return self[name](**options)
