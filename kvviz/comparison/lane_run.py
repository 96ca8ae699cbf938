"""One lane's run: it reads the reference's text, and generates its own in a fork from the first difference on."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvviz.comparison.lane import Lane
from kvviz.errors import RequestError
from kvviz.events import (
    BlocksReleased,
    Event,
    KvWritten,
    Piece,
    RequestFinished,
    RequestStarted,
    StepFinished,
    TokenSampled,
)
from kvviz.model.run import ModelRun


@dataclass(slots=True)
class LaneTrack:
    """One request in one lane.

    - `request_id`: the request that reads the reference's text.
    - `branch_id`: a fork that generates the lane's own text from the first difference on.
    - `free_pieces`: the lane's own text, as token id and piece by position.
    """

    request_id: int
    needle: str | None = None
    branch_id: int | None = None
    free_pieces: dict[int, tuple[int, Piece]] = field(default_factory=dict)
    has_parted: bool = False
    has_ended: bool = False
    branch_ended: bool = False
    needle_reported: bool = False
    num_projections: int = 0
    num_hit_tokens: int = 0
    forward_us: int = 0
    held_bytes: int = 0
    read_bytes: int = 0
    kept_share: float = 1.0
    copied_before: int = 0
    sampled: TokenSampled | None = None

    @property
    def is_writing(self) -> bool:
        return self.branch_id is not None and not self.branch_ended


class LaneRun:
    """One lane's run, with measurements from its events for each request of the reference."""

    def __init__(self, run: ModelRun, lane: Lane) -> None:
        self.run = run
        self.lane = lane
        self.tracks: dict[int, LaneTrack] = {}  # by the reference's request id
        self._by_request: dict[int, LaneTrack] = {}
        self.now: LaneTrack | None = None  # the track whose steps are running
        self.window_size = lane.policy.window_size if lane.policy else None
        run.on_event = self._note

    def follow(self, reference_id: int, request_id: int, needle: str | None) -> None:
        track = LaneTrack(request_id, needle, copied_before=self.run.runner.cache.copied_bytes)
        self.tracks[reference_id] = self._by_request[request_id] = track

    @property
    def writes(self) -> bool:
        return any(track.is_writing for track in self.tracks.values())

    def read_on(self, track: LaneTrack, token_id: int) -> bool:
        """Step the lane to its next position, and force `token_id` there. False if the lane can't continue."""
        track.sampled = None
        self.run.runner.forced[track.request_id] = token_id
        self.now = track
        while track.sampled is None:
            if not self.run.step(only=(track.request_id,)):
                return False
        self.now = None
        return True

    def write_on(self, track: LaneTrack) -> None:
        if track.branch_id is not None and track.is_writing:
            self.run.step(only=(track.branch_id,))

    def part(self, track: LaneTrack, position: int) -> None:
        """Fork the lane where its own token differs from the reference's, if the pool has enough blocks for both."""
        assert track.sampled is not None
        own = track.sampled.candidates[0]
        track.has_parted = True
        track.free_pieces[position] = own.token_id, own.piece
        engine = self.run.engine
        request = next((r for r in engine.scheduler.running if r.request_id == track.request_id), None)
        if request is None or own.token_id in request.stop_token_ids:
            track.branch_ended = True
            return
        tables = engine.tables
        most = tables.blocks_for(request.num_prompt_tokens + request.max_new_tokens)
        if 2 * most - tables.blocks_for(request.num_computed) > tables.pool.num_free + len(request.block_table):
            track.branch_ended = True
            return
        try:
            track.branch_id = engine.fork(track.request_id, position, own.token_id)
        except RequestError:  # it was the last token
            track.branch_ended = True
            return
        self._by_request[track.branch_id] = track

    def _note(self, event: Event) -> None:
        if isinstance(event, StepFinished):
            if self.now is not None:
                self.now.forward_us += event.forward_us
            return
        request_id = getattr(event, "request_id", None)
        track = self._by_request.get(request_id) if request_id is not None else None
        if track is None:
            return
        if request_id == track.branch_id:
            self._note_branch(track, event)
        elif isinstance(event, KvWritten):
            track.num_projections += len(event.positions)
            self._weigh(track)
        elif isinstance(event, BlocksReleased) and event.reason.code == "forgotten":
            self._weigh(track)
        elif isinstance(event, RequestStarted):
            track.num_hit_tokens = event.num_hit_tokens
        elif isinstance(event, TokenSampled):
            track.sampled = event
            self._note_reads(track)
        elif isinstance(event, RequestFinished):
            track.has_ended = True

    def _note_branch(self, track: LaneTrack, event: Event) -> None:
        if isinstance(event, TokenSampled):
            track.free_pieces[event.position] = event.token_id, event.piece
        elif isinstance(event, RequestFinished):
            track.branch_ended = True

    def _note_reads(self, track: LaneTrack) -> None:
        runner = self.run.runner
        read_bytes = runner.cache.read_bytes(track.request_id)
        if runner.forgetting_mask:
            track.kept_share = runner.forgetting_mask.kept_share(track.request_id)
            read_bytes = round(read_bytes * runner.forgetting_mask.read_share(track.request_id))
        elif self.window_size is not None and track.sampled is not None:
            track.kept_share = min(1.0, self.window_size / track.sampled.position)
        track.read_bytes = read_bytes

    def _weigh(self, track: LaneTrack) -> None:
        running = self.run.engine.scheduler.running
        table = next((r.block_table for r in running if r.request_id == track.request_id), [])
        num_blocks = sum(block_id is not None for block_id in table)
        track.held_bytes = self.run.runner.cache.held_bytes(track.request_id, num_blocks)
