"""The needle test: a word is hidden among unrelated sentences, and the prompt asks for it at the end."""

from __future__ import annotations

import random

WORDS = ("saffron", "lantern", "walrus", "velvet", "compass", "thunder", "pepper", "anchor")
HAY = (
    "The market opens at eight, and by nine the best fruit is gone.",
    "A narrow path leads from the mill to the river.",
    "On Sundays the band plays in the park if it does not rain.",
    "The old bridge was painted green three years ago.",
    "Most of the trees along the road are chestnuts.",
    "The baker closes early when the weather is good.",
    "Children fly kites on the hill behind the school.",
    "The train to the coast runs twice a day in winter.",
    "A cat sleeps on the steps of the town hall.",
    "The library has a clock that is always five minutes slow.",
    "In autumn the fields smell of smoke and apples.",
    "The ferry is small, and carries only two cars.",
)
#: Number of sentences before the word.
NUM_BEFORE = 3


def hide_needle(seed: int) -> tuple[str, str]:
    """A word, and a prompt of about 170 tokens that hides it and asks for it. Deterministic per seed."""
    generator = random.Random(seed)
    word = generator.choice(WORDS)
    hay = generator.sample(HAY, len(HAY))
    hay.insert(NUM_BEFORE, f"The code word is {word}.")
    return word, " ".join([*hay, "What is the code word? Answer with the code word."])
