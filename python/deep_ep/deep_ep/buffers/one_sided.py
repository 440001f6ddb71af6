# SPDX-License-Identifier: MIT
"""V2's operations beside dispatch and combine, on weft's one-sided ones: all-gathers in sessions,
messages to neighbours in a ring, and entries of tables that ranks hold."""
from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Sequence

import torch
import weft
from weft import one_sided

from ..delivery import described
from ..utils.math import align
from .sizes import TENSOR_BYTES, by_columns, shapes_of


def _words(comm: weft.Communicator, *shape: int) -> torch.Tensor:
    """Words of the heap, all 0. Collective."""
    words = comm.heap_empty(shape, torch.int64)
    words.zero_()
    comm.barrier()  # before anybody adds to them
    return words


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_contiguous():
        raise weft.InvalidArgumentError(f"{described(tensor)} is not contiguous")
    return tensor.view(-1).view(torch.uint8)


class _Gathers:
    """All-gathers of one session at a time, side by side in a block that all ranks write."""

    def __init__(self, comm: weft.Communicator, num_bytes: int, num_gathers: int):
        self._comm, self._num_bytes = comm, align(num_bytes, TENSOR_BYTES)
        self._block = comm.heap_empty(self._num_bytes, torch.uint8)
        self._arrived = _words(comm, num_gathers)
        self._expected = [0] * num_gathers  # since the beginning
        self._used = self._num_begun = 0
        self._is_open = False

    def open(self) -> None:
        assert not self._is_open, "a session is open"
        self._is_open, self._used, self._num_begun = True, 0, 0

    def close(self) -> None:
        assert self._is_open, "no session is open"
        self._comm.barrier()  # nobody reads what the next session overwrites
        self._is_open = False

    def places(self, sizes: Sequence[int]) -> tuple[list[torch.Tensor], int]:
        """R times as many bytes for each, and where the next ones begin."""
        assert self._is_open, "no session is open"
        made, used, num_ranks = [], self._used, self._comm.num_ranks
        for size in sizes:
            end = used + size * num_ranks
            if end > self._num_bytes:
                raise weft.CapacityError(f"the session needs {end} bytes, agrs_set_config() gave "
                                         f"it {self._num_bytes}")
            made.append(self._block[used:end])
            used = align(end, TENSOR_BYTES)
        return made, used

    def gather(self, tensors: Sequence[torch.Tensor]
               ) -> tuple[list[torch.Tensor], Callable[[], None]]:
        if self._num_begun == len(self._expected):
            raise weft.CapacityError(f"the session has {self._num_begun} all-gathers, as many as "
                                     "agrs_set_config() allowed")
        comm, slot = self._comm, self._num_begun
        inputs = [_bytes_of(tensor) for tensor in tensors]
        places, self._used = self.places([len(given) for given in inputs])
        word = self._arrived[slot:slot + 1]
        for given, place in zip(inputs, places):
            mine = place[comm.rank * len(given):][:len(given)]
            if mine.data_ptr() != given.data_ptr():
                mine.copy_(given)
            others = range(1, comm.num_ranks) if len(given) else ()
            for peer in ((comm.rank + i) % comm.num_ranks for i in others):
                one_sided.put_signal(comm, mine, mine, word, 1, peer)
                self._expected[slot] += 1
        self._num_begun, expected = slot + 1, self._expected[slot]
        gathered = [place.view(tensor.dtype).view(comm.num_ranks, *tensor.shape)
                    for place, tensor in zip(places, tensors)]
        return gathered, lambda: one_sided.wait_until(comm, word, expected)


class _Ring:
    """Messages to the next rank (lane 0) and to the previous one (lane 1), in slots of theirs."""

    def __init__(self, comm: weft.Communicator, num_bytes: int, num_slots: int):
        self._comm, self._num_slots = comm, num_slots
        self._sent, self._received = comm.heap_empty(
            (2, 2, num_slots, align(num_bytes, TENSOR_BYTES)), torch.uint8)
        self._arrived, self._consumed = _words(comm, 2, 2)
        self._num_sent, self._num_received = [0, 0], [0, 0]

    def _lane(self, peer: int, nearest: int) -> int:
        """0 if peer is that many ranks on, 1 if it is as many back."""
        comm = self._comm
        for lane, distance in enumerate((nearest, -nearest)):
            if peer == (comm.rank + distance) % comm.num_ranks:
                return lane
        raise weft.InvalidArgumentError(
            f"rank {peer} is no neighbour of rank {comm.rank} of {comm.num_ranks}")

    def _part(self, slots: torch.Tensor, lane: int, number: int, num_bytes: int) -> torch.Tensor:
        if num_bytes > slots.shape[2]:
            raise weft.CapacityError(f"the tensor has {num_bytes} bytes, pp_set_config() allowed "
                                     f"{slots.shape[2]}")
        return slots[lane, number % self._num_slots, :num_bytes]

    def send(self, tensor: torch.Tensor, to: int) -> None:
        given, lane = _bytes_of(tensor), self._lane(to, 1)
        number, consumed = self._num_sent[lane], self._consumed[lane:lane + 1]
        slot = self._part(self._sent, lane, number, len(given))
        if number >= self._num_slots:
            one_sided.wait_until(self._comm, consumed, number - self._num_slots + 1)
        slot.copy_(given)
        one_sided.put_signal(self._comm, self._part(self._received, lane, number, len(given)),
                             slot, self._arrived[lane:lane + 1], 1, to)
        self._num_sent[lane] += 1

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        wanted, lane = _bytes_of(tensor), self._lane(source, -1)
        number = self._num_received[lane]
        slot = self._part(self._received, lane, number, len(wanted))
        one_sided.wait_until(self._comm, self._arrived[lane:lane + 1], number + 1)
        wanted.copy_(slot)
        one_sided.signal(self._comm, self._consumed[lane:lane + 1], 1, source)
        self._num_received[lane] += 1


class _Table:
    """Entries of all ranks, as many of each. sf: scales of all entries, on every rank."""

    def __init__(self, comm: weft.Communicator, storage: torch.Tensor, sf: torch.Tensor | None):
        self._comm, self._dtype, self._sf = comm, storage.dtype, sf
        given = _bytes_of(storage).view(len(storage), -1)
        self._entries = comm.heap_empty(tuple(given.shape), torch.uint8)
        self._fetched = comm.heap_empty((1, given.shape[1]), torch.uint8)
        self._entries.copy_(given)
        self._comm.barrier()

    def fetch(self, indices: torch.Tensor, has_columns: bool
              ) -> tuple[torch.Tensor, torch.Tensor | None]:
        flat, num_entries = indices.flatten().long(), len(self._entries)
        data = self._entries.new_empty((len(flat), self._entries.shape[1]))
        for rank in flat.div(num_entries, rounding_mode="floor").unique().tolist():
            where = (flat // num_entries == rank).nonzero().squeeze(1)
            wanted = flat[where] - rank * num_entries
            theirs = self._comm.on_rank(self._entries, rank)
            data[where] = theirs[wanted] if theirs is not None else torch.stack(
                [self._get(entry, rank) for entry in wanted.tolist()])
        sf = self._sf
        if sf is not None:
            sf = sf[flat].view(len(indices), -1)
            sf = by_columns(sf) if has_columns else sf
        return data.view(self._dtype).view(len(indices), -1), sf

    def _get(self, entry: int, rank: int) -> torch.Tensor:
        """From another node."""
        one_sided.get(self._comm, self._fetched[0], self._entries[entry], rank)
        return self._fetched[0].clone()


class OneSided:
    """Part of ElasticBuffer. What configures is collective."""

    _comm: weft.Communicator
    _gathers: Any = None
    _ring: Any = None
    _table: Any = None

    def agrs_set_config(self, num_max_session_bytes: int,
                        num_max_all_gathers_per_session: int) -> None:
        self._comm.host_barrier()
        self._gathers = _Gathers(self._comm, num_max_session_bytes,
                                 num_max_all_gathers_per_session)

    def create_agrs_session(self) -> None:
        _configured(self._gathers, "agrs_set_config").open()

    def destroy_agrs_session(self) -> None:
        self._gathers.close()

    @contextmanager
    def agrs_new_session(self, enabled: bool = True) -> Iterator[None]:
        if not enabled:
            yield
            return
        self.create_agrs_session()
        try:
            yield
        finally:
            self.destroy_agrs_session()

    def agrs_get_inplace_tensor(self, shapes: Any, dtype: torch.dtype) -> Any:
        """Where the next all-gather takes this rank's tensors without a copy."""
        listed, is_list = shapes_of(shapes)
        places, _ = _configured(self._gathers, "agrs_set_config").places(
            [math.prod(shape) * dtype.itemsize for shape in listed])
        made = tuple(place.view(dtype).view(self._comm.num_ranks, *shape)[self._comm.rank]
                     for place, shape in zip(places, listed))
        return made if is_list else made[0]

    def all_gather(self, t: Any) -> tuple[Any, ...]:
        """Tensors [R, ...], of the session, and a function that waits for them."""
        tensors = (t,) if isinstance(t, torch.Tensor) else tuple(t)
        gathered, wait = _configured(self._gathers, "agrs_set_config").gather(tensors)
        return *gathered, wait

    def pp_set_config(self, num_max_tensor_bytes: int, num_max_inflight_tensors: int) -> None:
        self._comm.host_barrier()
        self._ring = _Ring(self._comm, num_max_tensor_bytes, num_max_inflight_tensors)

    def pp_send(self, t: torch.Tensor, dst_rank_idx: int, num_sms: int = 0) -> None:
        _configured(self._ring, "pp_set_config").send(t, dst_rank_idx)

    def pp_recv(self, t: torch.Tensor, src_rank_idx: int, num_sms: int = 0) -> None:
        _configured(self._ring, "pp_set_config").receive(t, src_rank_idx)

    def engram_write(self, storage: torch.Tensor, sf: torch.Tensor | None = None) -> None:
        self._comm.host_barrier()
        self._table = _Table(self._comm, storage, sf)

    def engram_fetch(self, indices: torch.Tensor, num_qps: int = 0,
                     use_tma_aligned_col_major_sf: bool = False) -> Callable[[], tuple[Any, Any]]:
        fetched = _configured(self._table, "engram_write").fetch(
            indices, use_tma_aligned_col_major_sf)
        return lambda: fetched


def _configured(part: Any, name: str) -> Any:
    if part is None:
        raise weft.InvalidArgumentError(f"{name}() must come first")
    return part
