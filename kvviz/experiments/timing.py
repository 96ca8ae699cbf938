"""Experiments on a live model: a timing attack on the prefix cache, and the memory bandwidth of this machine.

Timing attack. Tenants A and B share an engine. In each round, A sends a prompt from a short list, prefixed with the
number of the round. B sends a prompt from that list and observes only its time to first token. No prompt is used before
its round, so B can hit only blocks that A left. See Song et al., "The early bird catches the leak" (2024), and Gu et
al., "Auditing prompt caching in language model APIs" (2025).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from kvviz.config import EngineConfig
from kvviz.errors import RequestError
from kvviz.events import ProbeTimed
from kvviz.model.prompt import PromptRequest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from kvviz.engine.requests import Request
    from kvviz.model.instrumented import InstrumentedModel
    from kvviz.model.run import ModelRun

#: Names of the attacks on the page, and whether the tenants share prefixes.
TIMING_SCENARIOS = {"timing-shared": True, "timing-isolated": False}
NUM_PROBES = 40
#: Number of the attacker's own prompts that measure the times of a miss and a hit before the first guess.
NUM_LESSONS = 5
#: After this many guesses, the attacker measures one more prompt and drops the oldest, since machine speed varies.
GUESSES_PER_LESSON = 5
#: One chunk holds a whole prompt, so a miss and a hit take one step each.
TIMING_CONFIG = EngineConfig(num_blocks=48, prefill_chunk=128, max_running=1)

#: Prompts A may have sent. They differ in the first block, so a wrong guess shares no block with the right one.
SECRETS = ("asthma", "anaemia", "diabetes", "epilepsy", "migraine", "hepatitis", "insomnia", "depression")
#: 65 tokens with the default model: four full blocks, and one token that must be computed after a hit.
_PROMPT = (
    "Case {number}: {secret}. A doctor writes to a colleague about this patient. The letter names the illness and says "
    "how long it has lasted, which medicine was given, and when the patient comes again. The letter is short. It "
    "names the illness in its first line and asks one question at the end."
)


class TimingAttacker:
    """Tenant B. It receives only times to first token, in microseconds, of its own prompts."""

    def __init__(self) -> None:
        self.threshold_us = 0.0

    def learn(self, first_us: Sequence[float], again_us: Sequence[float]) -> None:
        """Learn from the times of its own prompts, sent for the first time and again.

        Noise only adds time: a miss is never much faster than the fastest miss, while a hit may be slow. The threshold
        is therefore three quarters of the way from the median hit to the fastest miss.
        """
        hit_us = statistics.median(again_us)
        self.threshold_us = hit_us + 0.75 * (min(first_us) - hit_us)

    def says_secret(self, time_us: float) -> bool:
        """Whether another tenant must have sent this prompt before."""
        return time_us < self.threshold_us


@dataclass(frozen=True, slots=True)
class TimingResult:
    """Result of an attack, with the times of right and wrong guesses in µs."""

    accuracy: float
    threshold_us: float
    right_us: tuple[int, ...]
    wrong_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Turn:
    """One prompt of one tenant. `is_timed`: B measures it; `is_lesson`, `is_again`: one of B's own prompts."""

    tenant: str
    prompt: str
    is_timed: bool = True
    is_lesson: bool = False
    is_again: bool = False
    is_secret: bool = False


class TimingAttack:
    """Plays the attack on a run: call `step` until `has_work` is false. Emits `probe_timed` after each probe.

    - `shared`: prompts have no salt; otherwise each tenant has its own.
    - `seed`: order of the guesses. Half of them (rounded down) are right, so a constant answer gains nothing.
    - `clock`: returns the time to first token of a finished request in µs; by default, the engine's measurement.
    """

    def __init__(
        self,
        model_run: ModelRun,
        *,
        shared: bool,
        seed: int = 0,
        num_probes: int = NUM_PROBES,
        clock: Callable[[Request], int] = attrgetter("first_token_us"),
    ) -> None:
        self.model_run = model_run
        self.shared = shared
        self.clock = clock
        self.attacker = TimingAttacker()
        self.probes: list[ProbeTimed] = []
        self._turns = _script(seed, num_probes)
        self._lessons: tuple[list[float], list[float]] = ([], [])
        self._now: tuple[_Turn, Request] | None = None
        self._begin()

    @property
    def has_work(self) -> bool:
        return bool(self._turns) or self._now is not None or self.model_run.has_work

    def step(self) -> bool:
        """Run one step, and start or end a turn around it."""
        worked = self.model_run.step()
        if self._now is not None and self._now[1].state == "finished":
            self._end(*self._now)
            self._now = None
        self._begin()
        return worked

    def run(self) -> None:
        while self.has_work:
            self.step()

    def result(self) -> TimingResult:
        """The attacker's result. Raises `RequestError` before the first guess."""
        guesses = [probe for probe in self.probes if probe.says_secret is not None]
        if not guesses:
            raise RequestError("The attacker hasn't guessed yet; play the experiment first.", code="no_result")
        return TimingResult(
            accuracy=sum(probe.says_secret == probe.is_secret for probe in guesses) / len(guesses),
            threshold_us=self.attacker.threshold_us,
            right_us=tuple(probe.first_token_us for probe in guesses if probe.is_secret),
            wrong_us=tuple(probe.first_token_us for probe in guesses if not probe.is_secret),
        )

    def _begin(self) -> None:
        """Start the next turn once nothing else runs: another prompt would distort its time."""
        if self._now is not None or self.model_run.has_work or not self._turns:
            return
        turn = self._turns.pop(0)
        salt = None if self.shared else turn.tenant
        request_id = self.model_run.add_prompt(PromptRequest(turn.prompt, template=False, max_new_tokens=1, salt=salt))
        waiting = self.model_run.engine.scheduler.waiting
        self._now = turn, next(request for request in waiting if request.request_id == request_id)

    def _end(self, turn: _Turn, request: Request) -> None:
        if not turn.is_timed or request.num_generated == 0:  # cancelled by a user
            return
        first_token_us = self.clock(request)
        time_us = float(first_token_us)
        says_secret = None
        if turn.is_lesson:
            first, again = self._lessons
            (again if turn.is_again else first).append(time_us)
            if first and again:
                self.attacker.learn(first[-NUM_LESSONS:], again[-NUM_LESSONS:])
        else:
            says_secret = self.attacker.says_secret(time_us)
        self.probes.append(
            ProbeTimed(
                request_id=request.request_id,
                probe=len(self.probes),
                shared=self.shared,
                is_secret=turn.is_secret,
                says_secret=says_secret,
                first_token_us=first_token_us,
                num_hit_tokens=request.num_hit_tokens,
            )
        )
        self.model_run.log.append(self.probes[-1])


def open_timing_attack(
    instrumented: InstrumentedModel,
    tokenizer: PreTrainedTokenizerBase,
    make: Callable[..., ModelRun],
    *,
    shared: bool,
    seed: int = 0,
    num_probes: int = NUM_PROBES,
) -> TimingAttack:
    """Prepare an attack. `make(instrumented, tokenizer, config, measure_misses=False)` creates its run."""
    model_run = make(instrumented, tokenizer, TIMING_CONFIG, measure_misses=False)
    return TimingAttack(model_run, shared=shared, seed=seed, num_probes=num_probes)


def measure_read_bandwidth(num_bytes: int = 2**28, num_rounds: int = 5) -> float:
    """Measure the memory bandwidth of a matrix-vector product in bytes per second.

    A decode step reads its weights the same way. Returns the best of several rounds with this thread's torch threads.
    """
    import torch

    width = 4_096
    matrix = torch.ones(num_bytes // (4 * width), width)
    vector = torch.ones(width)
    best_s = float("inf")
    for _ in range(num_rounds):
        began_s = time.perf_counter()
        torch.mv(matrix, vector)
        best_s = min(best_s, time.perf_counter() - began_s)
    return matrix.nbytes / best_s


def _script(seed: int, num_probes: int) -> list[_Turn]:
    dice = random.Random(seed)
    numbers = iter(dice.sample(range(1_000, 10_000), 2 * (NUM_LESSONS + num_probes)))
    turns = [_Turn("B", _prompt(next(numbers), SECRETS[0]), is_timed=False)]  # the very first prompt is slow

    def learn() -> None:
        prompt = _prompt(next(numbers), dice.choice(SECRETS))
        turns.extend(_Turn("B", prompt, is_lesson=True, is_again=again) for again in (False, True))

    for _ in range(NUM_LESSONS):
        learn()
    rights = [index < num_probes // 2 for index in range(num_probes)]
    dice.shuffle(rights)
    for index, is_right in enumerate(rights):
        if index and index % GUESSES_PER_LESSON == 0:
            learn()
        number, secret = next(numbers), dice.choice(SECRETS)
        guess = secret if is_right else dice.choice([other for other in SECRETS if other != secret])
        turns.append(_Turn("A", _prompt(number, secret), is_timed=False))
        turns.append(_Turn("B", _prompt(number, guess), is_secret=is_right))
    return turns


def _prompt(number: int, secret: str) -> str:
    return _PROMPT.format(number=number, secret=secret)
