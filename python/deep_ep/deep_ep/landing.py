# SPDX-License-Identifier: MIT
"""The part of the heap where rows arrive, and from which others fetch answers."""
from __future__ import annotations

import torch
import weft

ALIGNMENT_BYTES = 256


class Landing:
    """One block, used from its start by each operation; operations follow each other on a stream.

    It grows when a dispatch needs more. All ranks must come to the same number of bytes, so that
    they grow together.
    """

    def __init__(self, comm: weft.Communicator):
        self._comm = comm
        self._block: torch.Tensor | None = None
        self.num_bytes = self._used = 0
        self._is_kept = False  # when a larger block takes its place

    def reserve(self, num_bytes: int) -> None:
        """Makes room for arrays of num_bytes, with ALIGNMENT_BYTES for each of them. num_bytes is
        equal on all ranks. Collective if the block grows; without memory for that it stays."""
        if num_bytes <= self.num_bytes:
            return
        wanted = max(num_bytes, self.num_bytes * 5 // 4)
        before, self._block = self._block, self._comm.heap_empty(wanted, torch.uint8)
        is_kept, self._is_kept = self._is_kept, False
        self.num_bytes = wanted
        if before is not None and not is_kept:
            self._free(before)

    def _free(self, block: torch.Tensor) -> None:
        if self._comm.is_on_gpu:
            torch.cuda.synchronize()
        self._comm.host_barrier()  # nobody uses it any more
        self._comm.heap_free(block)

    def begin(self) -> None:
        """Starts the arrays of the next operation."""
        self._used = 0

    def keep(self) -> None:
        """Graphs use it, on all ranks, so it is never freed."""
        self._is_kept = True

    def close(self) -> None:
        """It keeps the communicator, which is to end."""
        self._block, self.num_bytes = None, 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        num_bytes = dtype.itemsize
        for size in shape:
            num_bytes *= size
        start, self._used = self._used, self._used + _aligned(num_bytes)
        assert start + num_bytes <= self.num_bytes, "more than was reserved"
        return self._block[start:start + num_bytes].view(dtype).view(shape)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy."""
        return self.take(tuple(tensor.shape), tensor.dtype).copy_(tensor)


def _aligned(num_bytes: int) -> int:
    return (num_bytes + ALIGNMENT_BYTES - 1) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
