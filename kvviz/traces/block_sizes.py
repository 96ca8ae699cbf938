"""The block size of a trace: checked against its requests, or inferred from them."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.traces.trace_request import TraceRequest

DEFAULT_BLOCK_SIZE = 512
MAX_BLOCK_SIZE = 2**20
#: Requests from which a block size is inferred.
NUM_SAMPLED = 200


def fits(request: TraceRequest, size: int) -> bool:
    """Whether a request has one hash for each block of `size` tokens; a partial last block may have none."""
    return len(request.hash_ids) in (-(-request.input_length // size), request.input_length // size)


def inferred(requests: Sequence[TraceRequest]) -> int | None:
    """The block size that fits all requests: a power of two if one does, else the smallest; None if none does.

    With n hashes for L tokens, ⌈L ÷ size⌉ = n means L ÷ n ≤ size < L ÷ (n − 1), and ⌊L ÷ size⌋ = n means
    L ÷ (n + 1) < size ≤ L ÷ n.
    """
    pairs = [(request.input_length, len(request.hash_ids)) for request in requests if request.input_length]
    if not any(num_hashes for _, num_hashes in pairs):
        return None
    with_partial = [(-(-length // n), (length - 1) // (n - 1) if n > 1 else None) for length, n in pairs if n]
    only_full = [(length // (n + 1) + 1, length // n if n else None) for length, n in pairs]
    for ranges in (with_partial, only_full):
        low = max(low for low, _ in ranges)
        high = min((high for _, high in ranges if high is not None), default=None)
        if high is None or low <= high:
            power = 1 << (low - 1).bit_length()
            size = power if high is None or power <= high else low
            if size <= MAX_BLOCK_SIZE and all(fits(request, size) for request in requests):
                return size
    return None


class BlockSize:
    """The block size of one reading of a trace, in tokens.

    `given`: set by the trace or by the user; None: the default, or what the first requests imply instead.
    """

    def __init__(self, given: int | None) -> None:
        self.size = given or DEFAULT_BLOCK_SIZE
        self._is_given = given is not None
        self._is_inferred = False
        self._better: int | None = None
        self._num_requests = self._num_misfits = self._num_sampled = 0
        self._first_misfit = ""

    def set(self, size: int) -> None:
        """Take the size that the trace itself names."""
        self.size, self._is_given = size, True

    def settle(self, sample: Sequence[TraceRequest]) -> None:
        """Decide on the size from the first requests of the trace."""
        if all(fits(request, self.size) for request in sample):
            return
        self._better, self._num_sampled = inferred(sample), len(sample)
        if self._better is not None and not self._is_given:
            self.size, self._is_inferred = self._better, True

    def check(self, request: TraceRequest) -> None:
        self._num_requests += 1
        if fits(request, self.size):
            return
        self._num_misfits += 1
        if not self._first_misfit:
            self._first_misfit = (
                f"request {self._num_requests:,} has {len(request.hash_ids):,} hash_ids for "
                f"{request.input_length:,} tokens"
            )

    @property
    def note(self) -> str | None:
        """That the size is inferred, and that requests don't match it; None if there is nothing to say."""
        sentences = []
        if self._is_inferred:
            sentences.append(
                f"The block size of {self.size:,} tokens is inferred from the number of hash_ids per request."
            )
        if self._num_misfits:
            sentences.append(
                f"{self._num_misfits:,} of {self._num_requests:,} requests don't match the block size of "
                f"{self.size:,} tokens ({self._first_misfit})."
            )
            if self._better not in (None, self.size):
                sentences.append(f"A block size of {self._better:,} would fit the first {self._num_sampled:,}.")
        return " ".join(sentences) or None
