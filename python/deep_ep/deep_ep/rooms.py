# SPDX-License-Identifier: MIT
"""The weft_ll of a Buffer, with their results and operations that have not ended.

weft combines each result once, in the order of the dispatches. DeepEP combines a result any number
of times, in any order. The usual step, a dispatch and its combine, ends its result and so leaves
nothing behind, in a graph as well. A combine of a result that has ended dispatches once more. All
ranks make equal calls, so all of them dispatch again.
"""
from __future__ import annotations

from collections import deque
from typing import Any, Callable, NamedTuple

import torch
import weft
from weft import (Dtype, InvalidArgumentError, LlAnswer, LlLayout, LlOnMissing, LlPhases,
                  OutOfMemoryError, ScaleKind)
from weft.outputs import Outputs

GROUP_ELEMENTS = 128  # that share a scale
MAX_RESULTS = 2
MAX_ROOMS = 16
MAX_MAKERS = 64  # of outputs of a room
LEAST_BYTES = 64 << 20  # of memory for rooms, with masks
EPOCH_BITS = 32  # the lower bits count restarts between unmaskings
NOT_ASKED = ("num_rows_per_rank", "missing_ranks")  # outputs that DeepEP does not have


class Answers(NamedTuple):
    """The rows or sums that combine sends back, and the blocks that do it."""

    kind: LlAnswer
    num_blocks: int = 0  # 0: weft chooses


class Kind(NamedTuple):
    """The settings that all calls of a weft_ll share."""

    hidden: int
    num_experts: int
    num_topk: int
    scale: ScaleKind | None  # None: rows are not quantised
    answers: Answers


class Unreceived(deque):
    """Calls that receive for operations that have sent only, since nobody has called their hooks.
    weft receives in the order of sends, DeepEP in the order of hooks. So a hook receives for all
    earlier operations, too; their own hooks then do nothing."""

    def receive_up_to(self, last: Callable[[], None]) -> None:
        while last in self:
            self.receive_first()

    def receive_all(self) -> None:
        while self:
            self.receive_first()

    def receive_first(self) -> None:
        self.popleft()()


class Room:
    """A weft_ll of a kind, for up to max_tokens, with its results that are not released."""

    def __init__(self, ll: weft.LowLatency, kind: Kind, max_tokens: int):
        self.ll, self.kind, self.max_tokens = ll, kind, max_tokens
        self.is_open = self.is_captured = False
        is_of_rows = kind.answers.kind == LlAnswer.ROWS
        self.weighing = LlPhases.RECEIVE if is_of_rows else LlPhases.SEND
        self._zero_copy_buffer: torch.Tensor | None = None
        self._makers: dict[int, Callable[[], Outputs]] = {}
        self._results: deque[object] = deque()  # dispatched, not combined
        self.dispatches, self.combines = Unreceived(), Unreceived()

    def open(self) -> None:
        self.ll.make()
        self.is_open = True

    def close(self) -> None:
        self.dispatches.receive_all()
        self.combines.receive_all()
        self.drop()

    def drop(self) -> None:
        """Closes the room; operations that have not received are lost."""
        self._begin_anew()
        self.is_open = False
        self.ll.destroy()

    def _begin_anew(self) -> None:
        self._results.clear()
        self.dispatches.clear()
        self.combines.clear()

    def unmask(self, mask: torch.Tensor, epoch: int) -> None:
        self.ll.unmask(mask, epoch)
        self._begin_anew()  # weft has dropped them

    def capacity(self, max_tokens: int) -> int:
        """The rows of an expert for which a call of max_tokens has room."""
        return self.ll.ep.comm.num_ranks * max_tokens

    def new_outputs(self, max_tokens: int) -> Outputs:
        maker = self._makers.get(max_tokens)
        if maker is None:
            if len(self._makers) == MAX_MAKERS:
                self._makers.clear()
            maker = self._makers[max_tokens] = self.ll.output_maker(
                NOT_ASKED, self.capacity(max_tokens))
        return maker()

    def zero_copy_buffer(self, max_tokens: int, device: torch.device) -> torch.Tensor:
        num_local, hidden = self.ll.sizes.num_local_experts, self.kind.hidden
        if self._zero_copy_buffer is None:
            self._zero_copy_buffer = torch.zeros(
                num_local * self.capacity(self.max_tokens) * hidden, dtype=torch.bfloat16,
                device=device)
        shape = (num_local, self.capacity(max_tokens), hidden)
        return self._zero_copy_buffer[:num_local * shape[1] * hidden].view(shape)

    # ------------------------------------------------------------ results

    def begin_dispatch(self, args: Any) -> None:
        """Makes room for one more result."""
        if len(self._results) + len(self.combines) < MAX_RESULTS:
            return
        self.ll.check(args)
        self.combines.receive_all()
        if len(self._results) == MAX_RESULTS:
            self._release()

    def has(self, result: object) -> bool:
        return result in self._results

    def has_dispatched(self, result: object) -> None:
        self._results.append(result)

    def begin_combine(self, result: object, topk_idx: torch.Tensor, max_tokens: int) -> None:
        """Makes the result the oldest one, and receives it."""
        if not (self._results and self._results[0] is result):
            self._make_oldest(result, topk_idx, max_tokens)
        while len(self.dispatches) >= len(self._results):
            self.dispatches.receive_first()

    def has_combined(self) -> None:
        self._results.popleft()

    def _make_oldest(self, result: object, topk_idx: torch.Tensor, max_tokens: int) -> None:
        is_there = result in self._results
        while self._results and self._results[0] is not result:
            self._release()
        if not is_there:
            self._dispatch_again(topk_idx, max_tokens)
            self._results.append(result)

    def _dispatch_again(self, topk_idx: torch.Tensor, max_tokens: int) -> None:
        """Dispatches rows of zeros, which nobody reads, by the routing of topk_idx."""
        x = torch.zeros((topk_idx.shape[0], self.kind.hidden), dtype=torch.bfloat16,
                        device=topk_idx.device)
        self.combines.receive_all()
        self.ll.dispatch(x, topk_idx, out=self.new_outputs(max_tokens))

    def _release(self) -> None:
        self.dispatches.receive_all()
        self.combines.receive_all()
        self.ll.release()
        self._results.popleft()


class Rooms:
    """The rooms of a Buffer, by kind. A new room takes the place of the oldest one, or of a room
    of its kind for fewer tokens. Rooms that graphs use stay. With masks all rooms lie within one
    weft_ll and share its masks, so that new rooms need no rank that is masked."""

    def __init__(self, comm: weft.Communicator, device: torch.device, has_masks: bool,
                 num_bytes: int):
        self._comm, self._device, self._has_masks = comm, device, has_masks
        self._by_kind: dict[Kind, Room] = {}
        self._of_graphs: list[Room] = []
        self._ep: weft.ExpertParallel | None = None
        self._num_bytes = max(num_bytes, LEAST_BYTES)
        self.masks: weft.LowLatency | None = None
        self._epoch = 0
        if has_masks:
            self.masks = self._new_masks(self._num_bytes)

    def _new_masks(self, num_bytes: int) -> weft.LowLatency:
        is_one_node = self._comm.node(0) == self._comm.node(self._comm.num_ranks - 1)
        return weft.LowLatency(
            self._experts(), 1, 1, 1, torch.bfloat16, layout=LlLayout.BY_RANK,
            on_missing=LlOnMissing.MASK, bytes_within=num_bytes,
            network_bytes_within=0 if is_one_node else num_bytes)

    def _experts(self) -> weft.ExpertParallel:
        if self._ep is None:
            self._ep = weft.ExpertParallel(self._comm, self._comm.num_ranks)
        return self._ep

    def find(self, kind: tuple[Any, ...], max_tokens: int) -> Room:
        """A room for the kind; it may still have to be opened."""
        room = self._by_kind.get(kind)
        if room is not None and max_tokens <= room.max_tokens:
            return room
        if room is not None:
            max_tokens = max(max_tokens, 2 * room.max_tokens)
        try:
            return self._describe(Kind(*kind), max_tokens, self.masks)
        except OutOfMemoryError:
            self._make_space(self._describe(Kind(*kind), max_tokens, None).ll.sizes)
            return self._describe(Kind(*kind), max_tokens, self.masks)

    def _describe(self, kind: Kind, max_tokens: int, within: weft.LowLatency | None) -> Room:
        if kind.num_experts < 1:
            raise InvalidArgumentError(f"num_experts is {kind.num_experts}; allowed are 1 and more")
        quantised = {} if kind.scale is None else {
            "narrow": Dtype.FP8_E4M3, "scale": kind.scale, "group": GROUP_ELEMENTS,
            "scale_columns": True}
        on_missing = LlOnMissing.MASK if self._has_masks else LlOnMissing.FAIL
        ll = weft.LowLatency.described(
            self._experts(), kind.hidden, max_tokens, kind.num_topk, torch.bfloat16,
            answer=kind.answers.kind, num_results=MAX_RESULTS,
            num_blocks=kind.answers.num_blocks, on_missing=on_missing,
            num_experts=kind.num_experts, within=within, **quantised)
        return Room(ll, kind, max_tokens)

    def open(self, room: Room) -> None:
        """Opens a room in place of one for fewer tokens. Collective, except with masks."""
        before = self._by_kind.pop(room.kind, None)
        if before is None and len(self._by_kind) == MAX_ROOMS:
            before = self._by_kind.pop(next(iter(self._by_kind)))
        if before is not None and before.is_captured:
            self._of_graphs.append(before)
        elif before is not None:
            before.close()
        room.open()
        self._by_kind[room.kind] = room

    # ------------------------------------------------------------ masks

    def _make_space(self, sizes: weft.abi.LlSizes) -> None:
        """Makes space for one more room, on all ranks that are not masked. A room larger than the
        whole memory needs the masked ranks, too."""
        if self._of_graphs or any(room.is_captured for room in self._by_kind.values()):
            raise OutOfMemoryError(
                f"low latency needs {sizes.heap_bytes} bytes, which are not there beside what "
                f"graphs use: give Buffer more num_rdma_bytes, now {self._num_bytes}")
        num_bytes = max(sizes.heap_bytes, sizes.network_bytes)
        masked = self.masks.query_mask(self._nobody())
        if num_bytes <= self._num_bytes:
            self._close_all()
            self._begin_anew(masked, self._epoch + 1)
            return
        if masked.any():
            raise OutOfMemoryError(
                f"low latency needs {num_bytes} bytes, and cannot have more than "
                f"{self._num_bytes} while ranks are masked: give Buffer more num_rdma_bytes")
        masks = self._new_masks(2 * num_bytes)  # before the others go: there may be no memory
        self._close_all()
        self.masks.destroy()
        self.masks, self._num_bytes = masks, 2 * num_bytes

    def _nobody(self) -> torch.Tensor:
        return torch.zeros(self._comm.num_ranks, dtype=torch.int32, device=self._device)

    def _close_all(self) -> None:
        for room in self._by_kind.values():
            room.close()
        self._by_kind.clear()

    def _drop_all(self) -> None:
        for room in self._by_kind.values():
            room.drop()
        self._by_kind.clear()

    def _begin_anew(self, mask: torch.Tensor, epoch: int) -> None:
        self._epoch = epoch
        self.masks.unmask(mask, epoch)

    def mask(self, rank: int) -> None:
        mask = self._nobody()
        mask[rank] = 1
        self.masks.mask(mask)

    def unmask_all(self) -> None:
        """Ranks that were masked lack the rooms that others have made meanwhile, so all ranks drop
        their rooms. Rooms that graphs use stay; all ranks must have them."""
        rooms = [*self._of_graphs, *self._by_kind.values()]
        if not any(room.is_captured for room in rooms):
            self._drop_all()
            rooms = []
        self._begin_anew(self._nobody(), (self._epoch >> EPOCH_BITS) + 1 << EPOCH_BITS)
        for room in rooms:
            room.unmask(self._nobody(), self._epoch)
