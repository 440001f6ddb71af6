# SPDX-License-Identifier: MIT
"""The operations under vLLM's class CustomAllreduce, and those of SGLang and FlashInfer, on weft.

Names and arguments are theirs. `fa` is what init_custom_ar() returned; pointers are int. Ranks are
any number of one host, tensors of any size. python/custom_all_reduce puts these functions into the
places of the callers' own; docs/custom-all-reduce.md tells how.
"""
from __future__ import annotations

import contextlib
import hashlib
import itertools
import time
from typing import Any

import torch

from . import shared_memory
from .collectives import CollectiveRecord, Collectives
from .communicator import Communicator, unique_id
from .library import InvalidArgumentError, UnsupportedError, WaitTimeoutError

META_BYTES = 2560
TIMEOUT_MS = 200_000  # ranks load models, and compile kernels, between calls
HEAP_MAX_BYTES = 256 << 20  # of which weft's packets and staging take a quarter
_ID_BYTES = 128
_POLL_S = 0.001


class _Group:
    """What fa stands for. comm is None where ranks share no memory."""

    def __init__(self, comm: Communicator | None):
        self.comm = comm
        self.coll = Collectives(comm) if comm else None
        self.record: CollectiveRecord | None = None  # from the first recorded call on
        self.num_recorded = 0

    def collectives(self) -> Collectives:
        if self.coll is None:
            raise UnsupportedError("the ranks of fa share no memory: they are on several hosts, "
                                   "where weft has no collectives of tensors")
        self.comm.check()
        return self.coll


_groups: dict[int, _Group] = {}
_numbers = itertools.count(1)


def _group_of(fa: int) -> _Group:
    if fa not in _groups:
        raise InvalidArgumentError(f"fa is {fa}, which init_custom_ar() did not return, or "
                                   "dispose() has ended")
    return _groups[fa]


# ------------------------------------------------------------ memory


def meta_size() -> int:
    """Bytes at the start of each of init_custom_ar()'s blocks that are for weft."""
    return META_BYTES


def allocate_shared_buffer_and_handle(size: int) -> tuple[int, torch.Tensor]:
    """A block of `size` zeros: its address, and its handle, uint8 [64] on the host."""
    address, handle = shared_memory.memory().allocate(size)
    return address, torch.tensor(list(handle), dtype=torch.uint8, device="cpu")


def open_mem_handle(mem_handle: torch.Tensor) -> int:
    """The address here of another process's block. mem_handle: uint8 [64]."""
    return shared_memory.memory().open(bytes(mem_handle.tolist()))


def free_shared_buffer(ptr: int) -> None:
    """Frees a block of allocate_shared_buffer_and_handle(), or closes one of open_mem_handle()."""
    shared_memory.memory().release(ptr)


# ------------------------------------------------------------ groups


def init_custom_ar(ipc_ptrs: list[int], rank_data: torch.Tensor, rank: int,
                   fully_connected: bool) -> int:
    """fa of a group. ipc_ptrs: the ranks' blocks as they are mapped here, of which only rank 0's is
    used, to meet; rank_data [...] of any dtype: a tensor of the device, not used. Collective."""
    num_ranks = len(ipc_ptrs)
    if not 0 <= rank < num_ranks:
        raise InvalidArgumentError(f"rank is {rank}, allowed are 0..{num_ranks - 1}")
    # Callers whose ranks cannot map each other's memory give their own in place of all.
    is_apart = num_ranks > 1 and len(set(ipc_ptrs)) == 1
    on_device = torch.cuda.device(rank_data.device) if rank_data.is_cuda else \
        contextlib.nullcontext()
    with on_device:
        group = _Group(None if is_apart else _meet(ipc_ptrs[0], rank, num_ranks))
    fa = next(_numbers)
    _groups[fa] = group
    return fa


def _meet(block: int, rank: int, num_ranks: int) -> Communicator:
    """Rank 0 leaves the id by which ranks meet in its block."""
    memory = shared_memory.memory()
    if rank == 0:
        rendezvous = unique_id()
        memory.write(block, rendezvous + _seal(rendezvous))
    else:
        rendezvous = _await_id(memory, block)
    try:
        comm = Communicator(rendezvous, rank, num_ranks, machine=memory.machine, num_nodes=1,
                            timeout_ms=TIMEOUT_MS, heap_max_bytes=HEAP_MAX_BYTES)
    finally:
        if rank == 0:
            memory.write(block, bytes(_ID_BYTES + len(_seal(b""))))
    comm.host_barrier()  # who meets in this block again must not find the id of before
    return comm


def _seal(rendezvous: bytes) -> bytes:
    """It tells an id from what else lies in the block, and from one that is written just now."""
    return hashlib.sha256(b"weft custom all-reduce" + rendezvous).digest()


def _await_id(memory: Any, block: int) -> bytes:
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while True:
        data = memory.read(block, _ID_BYTES + len(_seal(b"")))
        rendezvous, seal = data[:_ID_BYTES], data[_ID_BYTES:]
        if seal == _seal(rendezvous):
            return rendezvous
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"rank 0 has not called init_custom_ar() for {TIMEOUT_MS} ms, "
                                   "or ipc_ptrs[0] is not its block")
        time.sleep(_POLL_S)


def register_buffer(fa: int, ipc_ptrs: list[int]) -> None:
    """Nothing: operations need no copy of theirs."""
    _group_of(fa)


def dispose(fa: int) -> None:
    """Ends a group on this rank, at any time. Blocks of memory stay."""
    comm = _group_of(fa).comm
    del _groups[fa]
    if comm:
        comm.destroy()


# ------------------------------------------------------------ operations


def all_reduce(fa: int, inp: torch.Tensor, out: torch.Tensor, reg_buffer: int,
               reg_buffer_sz_bytes: int, num_ctas: int = 0) -> None:
    """out [...] = the sum of all ranks' inp [...], of float32, float16, bfloat16 and what else
    weft.Collectives take, in ascending rank order. Both are contiguous, or the same permutation of
    what is. out may be inp.

    On the current stream. What a capture records with reg_buffer 0 is read and written where it is,
    after register_graph_buffers(); else reg_buffer, its size and num_ctas are not used.
    """
    group = _group_of(fa)
    coll = group.collectives()
    if reg_buffer == 0 and _is_capturing(coll):
        group.record = group.record or CollectiveRecord(coll)
        group.num_recorded += 1
    coll.all_reduce(*_alike(inp, out))


def custom_all_gather(fa: int, inp: torch.Tensor, out: torch.Tensor, *unused: int) -> None:
    """out [R * N, ...] = all ranks' inp [N, ...], in rank order, of dtypes as all_reduce()'s, both
    contiguous. On the current stream."""
    coll = _group_of(fa).collectives()
    coll.all_gather(_flat(inp, "inp"), _rows(coll, out, "out"))


def custom_reduce_scatter(fa: int, inp: torch.Tensor, out: torch.Tensor, *unused: int) -> None:
    """out [N, ...] = this rank's part of the sum of all ranks' inp [R * N, ...], of dtypes as
    all_reduce()'s, both contiguous. On the current stream."""
    coll = _group_of(fa).collectives()
    coll.reduce_scatter(_rows(coll, inp, "inp"), _flat(out, "out"))


def _is_capturing(coll: Collectives) -> bool:
    return coll.comm.is_on_gpu and torch.cuda.is_current_stream_capturing()


def _flat(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The elements as a vector. Their order in memory must be that of the dimensions."""
    if not tensor.is_contiguous():
        raise InvalidArgumentError(f"{name} is not contiguous")
    return tensor.view(-1)


def _alike(inp: torch.Tensor, out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of both tensors as vectors, in the order of memory. Both tensors must be
    contiguous, or permuted alike, so that an index has one place in both."""
    if inp.is_contiguous() and out.is_contiguous():
        return inp.view(-1), out.view(-1)
    if _dense_order(inp, "inp") != _dense_order(out, "out") or inp.shape != out.shape:
        raise InvalidArgumentError(
            f"inp has shape {list(inp.shape)} and strides {list(inp.stride())}, out "
            f"{list(out.shape)} and {list(out.stride())}; they must lie in memory alike")
    return tuple(tensor.as_strided((tensor.numel(),), (1,)) for tensor in (inp, out))


def _dense_order(tensor: torch.Tensor, name: str) -> list[int]:
    """The dimensions that have several elements, the innermost first."""
    order = sorted((i for i, size in enumerate(tensor.shape) if size != 1), key=tensor.stride)
    num_elements = 1
    for i in order:
        if tensor.stride(i) != num_elements:
            raise InvalidArgumentError(f"{name} is neither contiguous nor a permutation of what "
                                       f"is: its strides are {list(tensor.stride())}")
        num_elements *= tensor.shape[i]
    return order


def _rows(coll: Collectives, tensor: torch.Tensor, name: str) -> torch.Tensor:
    num_ranks = coll.comm.num_ranks
    if tensor.numel() % num_ranks:
        raise InvalidArgumentError(f"{name} has {tensor.numel()} elements, which is no multiple "
                                   f"of the number of ranks, {num_ranks}")
    return _flat(tensor, name).view(num_ranks, tensor.numel() // num_ranks)


# ------------------------------------------------------------ graphs


def get_graph_buffer_ipc_meta(fa: int) -> tuple[list[int], list[int]]:
    """What callers exchange about the calls that were recorded since the last
    register_graph_buffers(): for each 64 bytes of a handle, and an offset. They are zeros, of which
    only the number counts: weft exchanges what it needs itself."""
    num_recorded = _group_of(fa).num_recorded
    return [0] * (shared_memory.HANDLE_BYTES * num_recorded), [0] * num_recorded


def register_graph_buffers(fa: int, handles: list[list[int]], offsets: list[list[int]]) -> None:
    """Lets the ranks reach what was recorded; what get_graph_buffer_ipc_meta() gave on all ranks
    tells whether anything was. Collective, after the capture and before its graph runs."""
    group = _group_of(fa)
    if not any(offsets):
        return
    record = group.record or CollectiveRecord(group.collectives())
    group.record, group.num_recorded = None, 0
    record.end()
