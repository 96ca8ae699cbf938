"""A comparison: one model with several caches, in lockstep on the text that the first one generates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from kvviz.comparison.calibration import CalibratedModel
from kvviz.comparison.entry_errors import entry_errors
from kvviz.comparison.lane import Lane, lane_choices
from kvviz.comparison.lane_run import LaneRun, LaneTrack
from kvviz.comparison.needle import hide_needle
from kvviz.config import EngineConfig
from kvviz.engine.requests import Request
from kvviz.errors import KvvizError, RequestError
from kvviz.events import (
    LaneErrorsMeasured,
    LaneMeasured,
    NeedleSought,
    TokenSampled,
)
from kvviz.log.frames import FRAME_BUDGET
from kvviz.log.recording_writer import write_recording
from kvviz.model.instrumented import InstrumentedModel
from kvviz.model.prompt import PromptRequest
from kvviz.model.run import ModelRun

#: Generated tokens between two measurements of entry errors.
ERROR_INTERVAL = 8


class Comparison:
    """Lanes in lockstep. Lane 0 is the reference; the other lanes read the tokens that it samples.

    `runs[i]` is the run of lane i, with its own log. The log of lane 0 also has the measurements of all lanes. Where a
    lane first samples another token, a fork continues with the lane's own text. Not thread-safe, like `ModelRun`.
    Raises `ConfigError` or `ModelError` if a lane doesn't support the model.
    """

    def __init__(
        self,
        instrumented: InstrumentedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        config: EngineConfig,
        lanes: Sequence[Lane],
        *,
        frame_budget: int = FRAME_BUDGET,
        keep_entries: bool = False,
        calibrated: CalibratedModel | None = None,
    ) -> None:
        calibrated = calibrated or CalibratedModel(instrumented, tokenizer)
        self.lanes = tuple(lanes)
        self._lane_runs = []
        for lane in lanes:
            lane_config = lane.config(config)
            storage, geometry = lane.storage(calibrated, lane_config.block_size)
            run = ModelRun(
                instrumented,
                tokenizer,
                lane_config,
                frame_budget=frame_budget // len(lanes),
                keep_entries=keep_entries,
                measure_misses=False,
                storage=storage,
                geometry=geometry,
            )
            self._lane_runs.append(LaneRun(run, lane))
        self.runs = [lane_run.run for lane_run in self._lane_runs]
        self.script = None
        self.live_header = {"lane_choices": lane_choices()}
        self._reference = self._lane_runs[0]
        self._seed = config.seed

    @property
    def main(self) -> ModelRun:
        return self.runs[0]

    @property
    def num_steps(self) -> int:
        return self.main.engine.num_steps

    @property
    def has_work(self) -> bool:
        return self.main.has_work or any(lane_run.writes for lane_run in self._lane_runs)

    def describe(self) -> list[dict[str, Any]]:
        """The `lanes` of a header."""
        return [
            {
                **lane.describe(),
                "index": index,
                "bytes_per_token": run.runner.cache.bytes_per_token if run.config.kv_cache else 0,
            }
            for index, (lane, run) in enumerate(zip(self.lanes, self.runs, strict=True))
        ]

    def header(self, index: int = 0) -> dict[str, Any]:
        """The header of a lane's log. The header of lane 0 lists all lanes."""
        header = self.runs[index].header()
        lanes = self.describe()
        return {**header, "lanes": lanes} if index == 0 else {**header, "lane": lanes[index]}

    def add_prompt(self, asked: PromptRequest) -> int:
        """Add a prompt to every lane; returns the reference's request id. `needle`: hide a word in a generated prompt.

        Only temperature 0 is allowed, so that differences come from the caches and not from sampling. Raises
        `RequestError`; then no lane has the prompt.
        """
        if asked.num_samples > 1:
            raise RequestError(
                f"A comparison generates a single sample (got {asked.num_samples}); omit num_samples.",
                code="lanes",
            )
        if asked.temperature > 0:
            raise RequestError(
                f"A comparison needs temperature 0, so that every lane takes its most probable token "
                f"(got {asked.temperature:g}).",
                code="lanes",
            )
        if self.has_work:
            raise RequestError(
                "A comparison runs one prompt at a time to measure it alone; wait until it finishes, or cancel it.",
                code="busy",
            )
        word = None
        if asked.needle:
            word, prompt = hide_needle(self._seed + len(self._reference.tracks))
            asked = replace(asked, prompt=prompt, needle=False)
        added: list[tuple[ModelRun, int]] = []
        try:
            for lane_run in self._lane_runs:
                own = asked
                if asked.continues is not None:
                    own = replace(asked, continues=self._track(lane_run, asked.continues).request_id)
                added.append((lane_run.run, lane_run.run.add_prompt(own)))
        except KvvizError:
            for run, request_id in added:
                run.engine.cancel(request_id)
            raise
        reference_id = added[0][1]
        for lane_run, (_, request_id) in zip(self._lane_runs, added, strict=True):
            lane_run.follow(reference_id, request_id, word)
        return reference_id

    def add_tokens(self, token_ids: Sequence[int], *, max_new_tokens: int) -> int:
        added = [run.engine.add_request(token_ids, max_new_tokens=max_new_tokens) for run in self.runs]
        for lane_run, request_id in zip(self._lane_runs, added, strict=True):
            lane_run.follow(added[0], request_id, None)
        return added[0]

    def cancel(self, request_id: int) -> None:
        """Cancel a request in all lanes, or the forks that lanes still run after the reference has finished."""
        tracks = [(lane_run, self._track(lane_run, request_id)) for lane_run in self._lane_runs[1:]]
        still = [
            (lane_run.run.engine, own_id)
            for lane_run, track in tracks
            for own_id in (track.request_id, track.branch_id)
            if own_id is not None and any(own_id == one.request_id for one in lane_run.run.engine.scheduler.live)
        ]
        if not still or any(one.request_id == request_id for one in self.main.engine.scheduler.live):
            self.main.engine.cancel(request_id)
        for engine, own_id in still:
            engine.cancel(own_id)

    def fork(self, request_id: int, position: int, token_id: int | None, max_new_tokens: int | None) -> int:
        """Raise `RequestError`, since all lanes read the same text."""
        raise RequestError(
            "A comparison can't be forked, since all lanes read one text; start a run without lanes to fork.",
            code="lanes",
        )

    def set_priority(self, request_id: int, priority: int) -> None:
        self.main.engine.reprioritise(request_id, priority)

    def reset_prefix_cache(self) -> bool:
        """Discard all cached prefixes in all lanes; False if a block is in use."""
        reset = [run.engine.reset_prefix_cache() for run in self.runs]
        return all(reset)

    def snapshot(self) -> Callable[[str | Path], None]:
        """The logs of all lanes up to now, as a function that writes them to a file.

        Raises `RequestError` if a log is incomplete.
        """
        first, *others = [run.parts(self.header(index)) for index, run in enumerate(self.runs)]
        return lambda path: write_recording(Path(path), *first, lanes=others)

    def step(self) -> bool:
        """Run one step of the reference, and all lanes up to the same position; False without work."""
        if not self.has_work:
            return False
        if self.main.has_work:
            reference_id, track = next(item for item in self._reference.tracks.items() if not item[1].has_ended)
            track.sampled = None
            self._reference.now = track
            self.main.step()
            if track.sampled is not None:
                self._compare(reference_id, track.sampled)
        else:
            for lane_run in self._lane_runs[1:]:
                for track in lane_run.tracks.values():
                    lane_run.write_on(track)
        self._report_needles()
        return True

    def run(self) -> None:
        while self.step():
            pass

    def _track(self, lane_run: LaneRun, reference_id: int) -> LaneTrack:
        track = lane_run.tracks.get(reference_id)
        if track is None:
            raise RequestError(
                f"Request {reference_id} is not part of this comparison; choose one from the tape.",
                code="no_request",
            )
        return track

    def _compare(self, reference_id: int, sampled: TokenSampled) -> None:
        """Let every lane read the token that the reference just sampled, and measure each lane."""
        wanted = self.main.runner.sampled[reference_id].double()
        for index, lane_run in enumerate(self._lane_runs):
            track = self._track(lane_run, reference_id)
            if index == 0:
                logits = wanted
            elif lane_run.read_on(track, sampled.token_id):
                logits = lane_run.run.runner.sampled[track.request_id].double()
            else:
                continue
            if not logits.isfinite().all():  # the lane's dtype overflowed: nothing to measure
                continue
            assert track.sampled is not None
            own = track.sampled.candidates[0]
            agrees = own.token_id == sampled.token_id
            if index == 0 or (agrees and not track.has_parted):
                track.free_pieces[sampled.position] = sampled.token_id, sampled.piece
            elif not track.has_parted:
                lane_run.part(track, sampled.position)
            else:
                lane_run.write_on(track)
            self._note_lane(index, reference_id, track, sampled, wanted, logits)
        self._measure_errors(reference_id, sampled.position)

    def _note_lane(
        self,
        index: int,
        reference_id: int,
        track: LaneTrack,
        sampled: TokenSampled,
        wanted: torch.Tensor,
        logits: torch.Tensor,
    ) -> None:
        """Record a lane's measurement at one position. `wanted`, `logits` [vocabulary]: the reference's and its own."""
        run = self._lane_runs[index].run
        cache = run.runner.cache
        assert track.sampled is not None
        own = track.sampled.candidates[0]
        log_p = wanted.log_softmax(-1)
        log_q = log_p if logits is wanted else logits.log_softmax(-1)
        keeps = run.config.kv_cache
        free_id, free_piece = track.free_pieces.get(sampled.position, (None, None))
        self.main.emit(
            LaneMeasured(
                lane=index,
                request_id=reference_id,
                position=sampled.position,
                token_id=sampled.token_id,
                own_token_id=own.token_id,
                own_piece=own.piece,
                agrees=own.token_id == sampled.token_id,
                kl=max(0.0, float((log_p.exp() * (log_p - log_q)).sum())),
                nll=-float(log_q[sampled.token_id]),
                max_abs_diff=float((wanted - logits).abs().max()),
                free_token_id=free_id,
                free_piece=free_piece,
                num_projections=track.num_projections,
                num_hit_tokens=track.num_hit_tokens,
                held_bytes=track.held_bytes if keeps else 0,
                read_bytes=track.read_bytes if keeps else 0,
                copied_bytes=cache.copied_bytes - track.copied_before,
                kept_share=track.kept_share,
                step_us=track.forward_us,
            )
        )
        track.forward_us = 0

    def _measure_errors(self, reference_id: int, position: int) -> None:
        """Every `ERROR_INTERVAL` tokens, measure the errors of each lane's entries."""
        history = self._find(self._reference, reference_id)
        if history is None or (position - history.num_prompt_tokens) % ERROR_INTERVAL:
            return
        for index, lane_run in enumerate(self._lane_runs[1:], 1):
            track = self._track(lane_run, reference_id)
            request = self._find(lane_run, track.request_id)
            if request is None or not request.num_computed:
                continue
            if all(part.exact for part in lane_run.lane.parts):
                continue
            errors = entry_errors(self.main, history, lane_run.run, request)
            if errors is None:
                continue
            key_error, value_error = errors
            self.main.emit(
                LaneErrorsMeasured(
                    lane=index,
                    request_id=reference_id,
                    num_tokens=request.num_computed,
                    key_error=key_error,
                    value_error=value_error,
                )
            )

    @staticmethod
    def _find(lane_run: LaneRun, request_id: int) -> Request | None:
        running = lane_run.run.engine.scheduler.running
        return next((request for request in running if request.request_id == request_id), None)

    def _report_needles(self) -> None:
        """For lanes whose own text has ended, record whether it contains the hidden word."""
        for reference_id, reference in self._reference.tracks.items():
            if reference.needle is None or not reference.has_ended:
                continue
            for index, lane_run in enumerate(self._lane_runs):
                track = lane_run.tracks[reference_id]
                if track.needle_reported or not track.has_ended or track.is_writing:
                    continue
                track.needle_reported = True
                answer = "".join(
                    piece.text for _, (_, piece) in sorted(track.free_pieces.items()) if piece.kind != "special"
                ).strip()
                self.main.emit(
                    NeedleSought(
                        lane=index,
                        request_id=reference_id,
                        word=reference.needle,
                        found=reference.needle.lower() in answer.lower(),
                        answer=answer,
                    )
                )
