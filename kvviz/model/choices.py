"""What a lane may choose: codecs and forgetting policies describe themselves, so that no menu names them twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, TypeVar

from kvviz.errors import ConfigError

Family = Literal["heads", "latent", "bits", "forgetting", "allocation"]

C = TypeVar("C", bound="Choice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A whole number that a choice takes, with its limits; `title` is what the page calls it."""

    name: str
    title: str
    default: int
    low: int
    high: int


class Choice:
    """One way to keep a cache. A subclass fills the class variables; `options` become attributes of that name.

    `value` names the option that `name=N` sets. `exact`: the model computes the same as without it. `about`: one
    sentence for the page. Raises `ConfigError` for an option that is unknown or outside its limits.
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
                raise ConfigError(
                    f"The lane {self.name} has no option {name!r}; its options are: {words}.", setting=self.name
                )
        for option in self.options:
            number = given.get(option.name, option.default)
            if not isinstance(number, int) or isinstance(number, bool) or not option.low <= number <= option.high:
                raise ConfigError(
                    f"{option.name} of the lane {self.name} must be a whole number from {option.low} to {option.high}, "
                    f"but is {number!r}; choose one in that range.",
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
    """Choices by name. `register` is the decorator with which one joins."""

    def register(self, choice: type[C]) -> type[C]:
        assert choice.name not in self, f"there are two choices named {choice.name}"
        self[choice.name] = choice
        return choice

    def make(self, name: str, options: Mapping[str, int]) -> C:
        """The choice of that name with these options. Raises `ConfigError`."""
        return self[name](**options)
