# SPDX-License-Identifier: MIT
"""Outputs of a low-latency dispatch, for PyTorch: allocated with little of the host's time, and
known to be right, so that nobody looks at them again.

Each tensor takes the host 1 us and more. So the small outputs lie in one block, and one of them is
a tensor when somebody asks for it. Memory comes by empty_strided(), which takes two thirds of the
time of empty(), and needs no view for scales by columns.
"""
from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

ALIGNMENT_BYTES = 128  # of small outputs


class _Place(NamedTuple):
    """Of a small output in the block."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    first: int  # element
    wide: Any  # the type of its elements, if it is not that of the block


class Counts:
    """The small outputs, which have their names in Rows."""

    __slots__ = ("block", "_places")

    def __init__(self, block: Any, places: dict[str, _Place]):
        self.block = block
        self._places = places

    def make(self, name: str) -> Any:
        """One of them as a tensor."""
        sizes, strides, first, wide = self._places[name]
        block = self.block if wide is None else self.block.view(wide)
        return block.as_strided(sizes, strides, first)


class Outputs:
    """What LowLatency.outputs() allocates; None is what there is not."""

    __slots__ = ("plan", "rows", "scales", "counts")

    def __init__(self, plan: Plan):
        self.plan = plan
        self.rows = plan.make_rows and plan.make_rows()
        self.scales = plan.make_scales and plan.make_scales()
        self.counts = Counts(plan.make_block(), plan.places)

    def fill(self, args: Any) -> None:
        """Sets the fields of arguments."""
        if self.rows is not None:
            args.rows = self.rows.data_ptr()
        if self.scales is not None:
            args.scales = self.scales.data_ptr()
        address = self.counts.block.data_ptr()
        for name, offset in self.plan.offsets:
            setattr(args, name, address + offset)


class Plan:
    """How outputs are allocated. all_shapes: as they lie in memory, by name, with names of dtypes.
    has_scale_columns: dimensions 1 and 2 of scales change places."""

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
            return partial(torch.empty_strided, sizes, strides, dtype=getattr(torch, dtype),
                           device=device)

        self.all_shapes = all_shapes
        small = {name: shape for name, shape in all_shapes.items() if name not in leave_out}
        rows, scales = small.pop("rows", None), small.pop("scales", None)
        self.make_rows = rows and maker(*rows)
        self.make_scales = scales and maker(*scales, is_swapped=has_scale_columns)
        self.places: dict[str, _Place] = {}
        self.offsets: list[tuple[str, int]] = []  # in bytes
        num_bytes = 0
        for name, (shape, dtype) in small.items():
            item_bytes, wide = (4, None) if dtype == "int32" else (8, getattr(torch, dtype))
            self.places[name] = _Place(shape, _strides_of(shape), num_bytes // item_bytes, wide)
            self.offsets.append((name, num_bytes))
            num_bytes += -(-math.prod(shape) * item_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.make_block = maker((num_bytes // 4,), "int32")


def _strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, of a dense tensor."""
    strides, num_elements = [], 1
    for size in reversed(shape):
        strides.append(num_elements)
        num_elements *= max(size, 1)
    return tuple(reversed(strides))


def _swapped(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (sizes[0], sizes[2], sizes[1])
