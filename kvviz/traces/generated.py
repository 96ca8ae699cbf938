"""Built-in traces, generated from a seed. They are synthetic, and labelled as such wherever they are shown."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvviz.errors import TraceError
from kvviz.messages import shown
from kvviz.traces.batches import Batch, Numbering, batches_of
from kvviz.traces.block_sizes import DEFAULT_BLOCK_SIZE
from kvviz.traces.trace_request import TraceRequest

#: Length of the benchmark's trace.
BENCH_REFERENCES, BENCH_REQUESTS = 280_000, 12_000
_DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Generated:
    """A trace that `make` generates from `seed`, always the same. `about` describes it in one sentence."""

    name: str
    title: str
    about: str
    seed: int
    make: Callable[[random.Random], Iterator[TraceRequest]]
    block_size: int = DEFAULT_BLOCK_SIZE

    def requests(self) -> Iterator[TraceRequest]:
        return self.make(random.Random(self.seed))

    def __iter__(self) -> Iterator[Batch]:
        return batches_of(self.requests(), Numbering())


class _Chain:
    """A growing prompt: full blocks keep their ids, and a partial block gets a new id for each request."""

    def __init__(self, ids: _Ids, parent: _Chain | None = None) -> None:
        self._ids = ids
        self.full: list[int] = list(parent.full) if parent else []
        self.length = len(self.full) * DEFAULT_BLOCK_SIZE if parent else 0

    def add(self, num_tokens: int) -> None:
        self.length += num_tokens
        self.full += self._ids.take(self.length // DEFAULT_BLOCK_SIZE - len(self.full))

    def request(self, timestamp: float, output_length: int) -> TraceRequest:
        tail = self._ids.take(1) if self.length % DEFAULT_BLOCK_SIZE else []
        return TraceRequest(timestamp, self.length, output_length, array("Q", [*self.full, *tail]))


class _Ids:
    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> list[int]:
        self._next += count
        return list(range(self._next - count, self._next))


def _chats(chance: random.Random) -> Iterator[TraceRequest]:
    ids = _Ids()
    systems = []
    for length in (2_600, 5_200, 1_100, 7_800):
        system = _Chain(ids)
        system.add(length)
        systems.append(system)
    requests: list[TraceRequest] = []
    for _ in range(1_500):
        chat = _Chain(ids, chance.choices(systems, (50, 25, 15, 10))[0])
        now = chance.triangular(0, _DAY_MS, 0.6 * _DAY_MS)
        while True:
            chat.add(int(chance.lognormvariate(5.0, 1.0)) + 8)
            answer = int(chance.lognormvariate(5.5, 0.6)) + 8
            requests.append(chat.request(now, answer))
            chat.add(answer)
            pause_s = 7_200 if chance.random() < 0.3 else 90
            now += 1_000 * (20 * answer / 500 + chance.expovariate(1 / pause_s))
            if chance.random() < 0.22 or chat.length > 60_000:
                break
    yield from sorted(requests, key=lambda request: request.timestamp)


def _agents(chance: random.Random) -> Iterator[TraceRequest]:
    ids = _Ids()
    tools = _Chain(ids)
    tools.add(9_000)
    requests: list[TraceRequest] = []
    for _ in range(90):
        task = _Chain(ids, tools)
        task.add(int(chance.lognormvariate(8.0, 0.7)))
        start = chance.uniform(0, _DAY_MS / 6)
        leaves = [(task, start)]
        for _ in range(chance.randint(20, 70)):
            parent, now = leaves[chance.randrange(max(0, len(leaves) - 6), len(leaves))]
            step = _Chain(ids, parent)
            step.add(int(chance.lognormvariate(6.6, 0.9)) + 30)
            now += 1_000 * chance.expovariate(1 / 12)
            requests.append(step.request(now, int(chance.lognormvariate(5.0, 0.5)) + 5))
            leaves.append((step, now))
    yield from sorted(requests, key=lambda request: request.timestamp)


def _documents(chance: random.Random) -> Iterator[TraceRequest]:
    ids = _Ids()
    requests: list[TraceRequest] = []
    now = 0.0
    documents: list[_Chain] = []
    for _ in range(160):
        document = _Chain(ids)
        document.add(int(chance.lognormvariate(9.6, 0.6)))
        documents.append(document)
    for _ in range(4):  # each round asks about every document, in the same order
        for document in documents:
            now += 1_000 * chance.expovariate(1 / 3)
            question = _Chain(ids, document)
            question.add(chance.randint(30, 200))
            requests.append(question.request(now, chance.randint(50, 400)))
    yield from requests


def _bench(chance: random.Random) -> Iterator[TraceRequest]:
    """Chains of a tree of chats, up to the required number of references."""
    ids, left = _Ids(), BENCH_REFERENCES
    chains: list[list[int]] = []
    for number in range(BENCH_REQUESTS):
        fair = left / (BENCH_REQUESTS - number)
        length = max(1, min(left - (BENCH_REQUESTS - number - 1), round(chance.expovariate(1 / fair)) + 1))
        if number == BENCH_REQUESTS - 1:
            length = left
        chain: list[int] = []
        if chains and chance.random() < 0.6:
            parent = chains[-1 - min(len(chains) - 1, int(chance.expovariate(1 / 900)))]
            chain = parent[: min(length, len(parent))]
        chain += ids.take(length - len(chain))
        chains.append(chain)
        left -= length
        yield TraceRequest(50.0 * number, length * DEFAULT_BLOCK_SIZE, 1, array("Q", chain))


CHATS = Generated(
    "chats",
    "A day of chats",
    "1,500 chats over a day, most of them in the afternoon. Each starts with one of four system prompts of 1,100 to "
    "7,800 tokens and continues with its whole history, after a minute or two or, three times in ten, after hours.",
    1,
    _chats,
)
AGENTS = Generated(
    "agents",
    "An agent tree",
    "90 tasks that share 9,000 tokens of tool definitions. Each grows a tree of 20 to 70 steps, and a step continues "
    "one of the last six, so branches share prefixes.",
    2,
    _agents,
)
DOCUMENTS = Generated(
    "documents",
    "A batch of documents",
    "160 documents of about 15,000 tokens, queried in the same order in four rounds: a loop, the worst case for LRU "
    "as long as the cache is smaller than all documents together.",
    3,
    _documents,
)
BENCH = Generated("bench", "Benchmark", "A tree of chats: 12,000 requests with 280,000 references.", 4, _bench)

GENERATED = (CHATS, AGENTS, DOCUMENTS)


def find_generated(name: str) -> Generated:
    """Return one of `GENERATED`. Raises `TraceError` for an unknown name."""
    found = next((made for made in GENERATED if made.name == name), None)
    if found is None:
        raise TraceError(
            f"The trace {shown(name)} doesn't exist or is no longer kept; choose one of "
            f"{', '.join(made.name for made in GENERATED)}, or upload the file again.",
            code="no_such_trace",
        )
    return found
