# SPDX-License-Identifier: MIT
"""Dispatches in two steps: what does not depend on the number of rows that come is done before
somebody waits for it, since the GPU waits for what is done after that."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from . import abi, arrays
from .abi import Dtype, ScaleKind
from .library import InvalidArgumentError, lib
from .rows import narrow_name, scale_shape

if TYPE_CHECKING:
    from .expert_parallel import Handle
    from .streams import Stream


class Narrowing(NamedTuple):
    """How the first plane is quantised on its way.

    - dtype: of its rows
    - group: elements that share a scale
    - scale: of what kind
    """

    dtype: Dtype
    group: int
    scale: ScaleKind


class Output(NamedTuple):
    """What an output has to be, and the field that gets its address.

    - args: a struct of weft.h
    - field: its name there
    - like: an input; the output is an array of its library
    - row_shape: dimensions after the first, which is the capacity
    - dtype: a name
    """

    args: Any
    field: str
    like: Any
    row_shape: tuple[int, ...]
    dtype: str


class Dispatch:
    """A dispatch of a handle that has a layout, until it gets another one. Its inputs, as of
    Handle.dispatch(), were looked at; each plane [N, ...] of any type, topk_idx and topk_weights
    [N, K]. `outputs` tells what is delivered: the planes, scales, and, if they are sent or wanted,
    topk_idx, topk_weights and src_token."""

    def __init__(self, handle: Handle, planes: tuple[Any, ...], topk_idx: Any = None,
                 topk_weights: Any = None, *, with_src_token: bool = False, num_blocks: int = 0,
                 narrowing: Narrowing | None = None):
        if narrowing is not None and not planes:
            raise InvalidArgumentError("x has no planes, of which narrow quantises the first")
        self._handle, self._inputs = handle, (planes, topk_idx, topk_weights)
        self._listed = (abi.Plane * len(planes))()
        self._args = abi.EpDispatchArgs(planes=ctypes.addressof(self._listed),
                                        num_planes=len(planes), num_blocks=num_blocks)
        self.outputs: list[Output] = []
        self._list_planes(planes, narrowing)
        if topk_idx is not None:
            self._carry("topk_idx", topk_idx, ("int32", "int64"))
            self._args.index_type = arrays.index_type_of(topk_idx)
        if topk_weights is not None:
            self._carry("topk_weights", topk_weights, ("float32",))
        if with_src_token:
            self.outputs.append(Output(self._args, "recv_src_token", planes[0] if planes else None,
                                       (), "int32"))

    def _list_planes(self, planes: tuple[Any, ...], narrowing: Narrowing | None) -> None:
        num_tokens = self._handle.known_tokens()
        for i, plane in enumerate(planes):
            seen, listed = self._rows(plane, num_tokens, f"x[{i}]"), self._listed[i]
            listed.size = ctypes.sizeof(abi.Plane)
            listed.row_bytes, listed.src = seen.row_bytes, seen.address
            if seen.strides:
                listed.src_stride_bytes = seen.strides[0]
            is_narrow = narrowing is not None and i == 0
            self.outputs.append(Output(listed, "dst", plane, seen.shape[1:],
                                       narrow_name(narrowing.dtype) if is_narrow else seen.dtype))
            if is_narrow:
                scales = self._narrow(listed, plane, seen, narrowing)
        if narrowing is not None:
            self.outputs.append(scales)

    def _rows(self, plane: Any, num_tokens: int, name: str) -> arrays.View:
        seen = self._handle.ep.comm.view(plane, name, dense=False)
        if not seen.shape or seen.shape[0] != num_tokens:
            raise InvalidArgumentError(
                f"{name} has shape {seen.shape}; its first dimension must be {num_tokens} tokens")
        if seen.strides is not None:
            arrays.check_rows(seen, name)
        return seen

    @staticmethod
    def _narrow(listed: abi.Plane, plane: Any, seen: arrays.View, how: Narrowing) -> Output:
        """Lists a plane as one that is quantised; returns its scales."""
        arrays.check_rows(seen, "x[0]")
        listed.dtype, listed.quantisation.dtype = arrays.weft_dtype(seen, None, "x[0]"), how.dtype
        listed.quantisation.scale, listed.quantisation.group_elements = how.scale, how.group
        shape, dtype = scale_shape(0, seen.shape[1], how.group, how.scale)
        return Output(listed, "scales", plane, shape[1:], dtype)

    def _carry(self, name: str, sent: Any, dtypes: tuple[str, ...]) -> None:
        row_shape = (self._handle.num_topk,)
        setattr(self._args, name, self._handle.ep.comm.address_of(
            sent, name, dtypes, (self._handle.known_tokens(), *row_shape)))
        self.outputs.append(Output(self._args, "recv_" + name, sent, row_shape,
                                   arrays.name_of_dtype(sent)))

    def enqueue(self, capacity: int, addresses: Sequence[int | None], stream: Stream | None,
                *used: Any) -> None:
        """Enqueues it, with an address for each of `outputs`, which have room for so many rows.
        Collective."""
        for output, address in zip(self.outputs, addresses):
            setattr(output.args, output.field, address)
        args = self._args
        args.capacity = capacity
        self._handle.ep.comm.enqueue(lib.weft_ep_dispatch, self._handle._native, args, stream,
                                     self._inputs, *used)
