# SPDX-License-Identifier: MIT
"""Outputs of a low-latency dispatch, for PyTorch: allocated with little of the host's time, and
known to be right, so that nobody looks at them again.

Each tensor takes the host 1 us and more. So the small outputs lie in one block. The first of them
is the block's tensor itself, made shorter; others are tensors when somebody asks for them. Memory
comes by empty_like(), which takes two thirds of the time of empty(), and keeps strides, so that
scales by columns need no view.
"""
from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

ALIGNMENT_BYTES = 128  # of small outputs


class _Place(NamedTuple):
    """Of a small output in the block; in elements of the block."""

    shape: tuple[int, ...]
    first: int
    num_words: int
    wide: Any  # the type of its elements, if it is not that of the block


class Outputs:
    """What a function of LowLatency.output_maker() allocates; None is what there is not."""

    __slots__ = ("plan", "rows", "scales", "block")

    def __init__(self, plan: Plan):
        self.plan = plan
        self.rows = plan.make_rows and plan.make_rows()
        self.scales = plan.make_scales and plan.make_scales()
        self.block = plan.make_block().resize_(*plan.shape_of_first)  # a tuple takes 0.3 us more

    def fill(self, args: Any) -> None:
        """Sets the fields of arguments."""
        if self.rows is not None:
            args.rows = self.rows.data_ptr()
        if self.scales is not None:
            args.scales = self.scales.data_ptr()
        address = self.block.data_ptr()
        for name, offset in self.plan.offsets:
            setattr(args, name, address + offset)

    def tensors(self) -> tuple[Any, ...]:
        """All that operations use."""
        return self.rows, self.scales, self.block

    def make(self, name: str) -> Any:
        """A small output as a tensor, [...] of the dtype that it has in Rows."""
        return self.plan.make(self.block, name)


class Plan:
    """How outputs are allocated. all_shapes: as they lie in memory, by name, with names of dtypes.
    has_scale_columns: dimensions 1 and 2 of scales change places."""

    maker: Any  # tells the LowLatency that made the plan
    expert_capacity: int  # rows of an expert for which outputs have room

    def __init__(self, cuda_device: int | None, all_shapes: dict[str, tuple[tuple[int, ...], str]],
                 leave_out: tuple[str, ...], *, has_scale_columns: bool):
        import torch

        device = torch.device("cpu" if cuda_device is None else f"cuda:{cuda_device}")

        def maker(shape: tuple[int, ...], dtype: str, is_swapped: bool = False) -> Any:
            sizes, strides = shape, _strides_of(shape)
            if is_swapped:
                sizes, strides = _swapped(sizes), _swapped(strides)
            if sizes[-1] == 1:
                strides = (*strides[:-1], 1)  # so that bytes can be viewed
            like = torch.empty_strided(sizes, strides, dtype=getattr(torch, dtype), device=device)
            like.untyped_storage().resize_(0)  # it is only to say what others are like
            return partial(torch.empty_like, like)

        small = {name: shape for name, shape in all_shapes.items() if name not in leave_out}
        rows, scales = small.pop("rows", None), small.pop("scales", None)
        self.make_rows = rows and maker(*rows)
        self.make_scales = scales and maker(*scales, is_swapped=has_scale_columns)
        self._places: dict[str, _Place] = {}
        self.offsets: list[tuple[str, int]] = []  # in bytes
        num_bytes = 0
        for name, (shape, dtype) in small.items():
            item_bytes, wide = (4, None) if dtype == "int32" else (8, getattr(torch, dtype))
            size = math.prod(shape) * item_bytes
            self._places[name] = _Place(shape, num_bytes // 4, size // 4, wide)
            self.offsets.append((name, num_bytes))
            num_bytes += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.make_block = maker((num_bytes // 4,), "int32")
        self._first = next(iter(self._places), None)
        self.shape_of_first = self._places[self._first].shape if self._places else (0,)

    def make(self, block: Any, name: str) -> Any:
        """The same of a block of Outputs, [...] of int32."""
        shape, first, num_words, wide = self._places[name]
        if name == self._first:
            return block
        words = block.as_strided((num_words,), (1,), first)
        return (words if wide is None else words.view(wide)).view(shape)


def _strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, of a dense tensor."""
    strides, num_elements = [], 1
    for size in reversed(shape):
        strides.append(num_elements)
        num_elements *= max(size, 1)
    return tuple(reversed(strides))


def _swapped(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (sizes[0], sizes[2], sizes[1])
