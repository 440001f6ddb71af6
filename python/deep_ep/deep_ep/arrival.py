# SPDX-License-Identifier: MIT
"""What comes with one dispatch."""
from __future__ import annotations

import math

import torch
from weft.dispatches import Dispatch

from .routing import Routing


class Arrival:
    """A dispatch that begins when its number of rows is known. From when the host learns that until
    it has begun the GPU has nothing to do; so all else is done when this object is made."""

    __slots__ = ("routing", "is_capturing", "_dispatch", "_stream", "_rows", "row_bytes")

    def __init__(self, routing: Routing, planes: tuple[torch.Tensor, ...],
                 topk_idx: torch.Tensor | None, topk_weights: torch.Tensor | None, *,
                 with_src_token: bool, num_blocks: int, is_capturing: bool):
        self.routing, self.is_capturing = routing, is_capturing
        self._dispatch = Dispatch(routing.handle, planes, topk_idx, topk_weights,
                                  with_src_token=with_src_token, num_blocks=num_blocks)
        self._stream = routing.handle.ep.comm.current_stream()
        self._rows = [(output.row_shape, getattr(torch, output.dtype))
                      for output in self._dispatch.outputs]
        self.row_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self._rows)

    def arrays(self) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Shapes and dtypes of what comes to this rank."""
        num_rows = self.routing.num_rows
        return [((num_rows, *shape), dtype) for shape, dtype in self._rows]

    def receive(self, tensors: list[torch.Tensor]) -> None:
        """Begins, with tensors that were made as arrays() says."""
        self._dispatch.enqueue(self.routing.num_rows,
                               [tensor.data_ptr() for tensor in tensors], self._stream)
