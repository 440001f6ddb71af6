# SPDX-License-Identifier: MIT
"""Tensors that PyTorch allocates in the heap, so that operations reach them where they are.

On machine cuda they are ordinary tensors of PyTorch's caching allocator, of a torch.cuda.MemPool
whose memory is an arena: record_stream() works, and they may outlive everything else. The functions
that PyTorch calls for memory are C (python/pool/pool.c): it calls them with its lock held, where
Python must not run.
"""
from __future__ import annotations

import atexit
import ctypes
import enum
import threading
import warnings
import weakref
from typing import Any

import torch

from .allocator import LIBRARY, Allocator
from .communicator import Arena, Communicator
from .library import OutOfMemoryError
from .objects import Native, Uncopied

# PyTorch puts what is smaller than 1 MiB into segments of 2 MiB of their own, for which this much
# of an arena is left. All else is one segment, which it splits and joins: of segments made for
# tensors none would fit the next ones that are a little larger.
SMALL_BYTES = 64 << 20
SEGMENT_BYTES = 2 << 20
MOST_NOT_ASKED = 64  # times that a pool which was full is not asked


class WhenFull(enum.Enum):
    """What is allocated where the heap has no room."""

    NOTHING = 0  # PyTorch raises its OutOfMemoryError, and Pool.empty() gives ordinary tensors
    DEVICE_MEMORY = 1  # which stays in the pool, and may be used though there is room again


_lock = threading.RLock()
# Of pools that were closed: their torch.cuda.MemPools, which must not end while anything is
# captured, and communicators, whose memory somebody may still use.
_mem_pools: list[Any] = []
_closed: list[tuple[Allocator, Native]] = []


def _collect() -> None:
    """Ends what closed pools have left, as far as nobody uses it."""
    with _lock:
        if _mem_pools and not torch.cuda.is_current_stream_capturing():
            _mem_pools.clear()
        entries, _closed[:] = _closed[:], []
        for allocator, native in entries:
            if allocator.num_blocks():
                _closed.append((allocator, native))
            else:
                native.remove_array()


@atexit.register
def _close_all() -> None:
    """Before communicators end; PyTorch may give memory back later."""
    pools = list(Pool._all)
    if torch.cuda.is_initialized() and pools:
        torch.cuda.synchronize()
    for pool in pools:
        pool.destroy()


Array = tuple[tuple[int, ...], torch.dtype]  # shape and dtype


class _InMemPool:
    """torch.cuda.use_mem_pool(), outside of captures, by the same calls of PyTorch's without the
    rest, which takes longer than a tensor. It may be entered again and again."""

    def __init__(self, mem_pool: Any, device: int):
        self._where = device, mem_pool.id

    def __enter__(self) -> None:
        torch._C._cuda_beginAllocateCurrentThreadToPool(*self._where)

    def __exit__(self, *unused: Any) -> None:
        torch._C._cuda_endAllocateToPool(*self._where)
        torch._C._cuda_releasePool(*self._where)

    @staticmethod
    def is_there() -> bool:
        """Older versions of PyTorch have other calls, or none."""
        return all(hasattr(torch._C, f"_cuda_{name}") for name in (
            "beginAllocateCurrentThreadToPool", "endAllocateToPool", "releasePool"))


class _CudaMemory:
    """A torch.cuda.MemPool whose memory is that of arenas."""

    def __init__(self, comm: Communicator, when_full: WhenFull):
        driver = ctypes.CDLL("libcuda.so.1")
        self._comm, self._device = comm, comm.cuda_device
        self._place = torch.device(f"cuda:{self._device}")
        self._allocator = Allocator((driver.cuMemAlloc_v2, driver.cuMemFree_v2)
                                    if when_full == WhenFull.DEVICE_MEMORY else None)
        self._of_torch = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, *self._allocator.names)
        self.mem_pool = torch.cuda.MemPool(self._of_torch.allocator())
        self._entered = _InMemPool(self.mem_pool, self._device) if _InMemPool.is_there() else None
        weakref.finalize(self.mem_pool, self._allocator.give_back)
        comm._native.add_array()

    def add(self, arena: Arena, num_bytes: int) -> None:
        """For the current stream, to which blocks of PyTorch's belong."""
        self._allocator.add(arena._native)
        with torch.cuda.use_mem_pool(self.mem_pool, self._device):
            torch.empty(num_bytes - min(SMALL_BYTES, num_bytes // 2), dtype=torch.uint8,
                        device=self._place)

    def reclaim(self) -> None:
        # Only where it allocates outside of pools PyTorch looks whether the streams of
        # record_stream() have passed: who does nothing else would fill the pool.
        torch.empty(1, dtype=torch.uint8, device=self._place)

    def empty(self, arrays: tuple[Array, ...]) -> list[torch.Tensor]:
        try:
            return self._empty(arrays)
        except torch.cuda.OutOfMemoryError:
            self.reclaim()
            return self._empty(arrays)

    def _empty(self, arrays: tuple[Array, ...]) -> list[torch.Tensor]:
        place = self._place
        with self._entered or torch.cuda.use_mem_pool(self.mem_pool, self._device):
            return [torch.empty(*shape, dtype=dtype, device=place) if shape  # a tuple takes longer
                    else torch.empty(shape, dtype=dtype, device=place) for shape, dtype in arrays]

    def close(self) -> None:
        with _lock:
            self._allocator.close()
            _closed.append((self._allocator, self._comm._native))
            _mem_pools.append(self.mem_pool)
            self.mem_pool = None


class _HostMemory:
    """Arenas, from which tensors come one by one."""

    mem_pool = None

    def __init__(self, comm: Communicator, when_full: WhenFull):
        self._arenas: list[Arena] = []

    def add(self, arena: Arena, num_bytes: int) -> None:
        self._arenas.append(arena)

    def reclaim(self) -> None:
        pass

    def empty(self, arrays: tuple[Array, ...]) -> list[torch.Tensor]:
        return [self._empty_one(*array) for array in arrays]

    def _empty_one(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        for arena in reversed(self._arenas):
            try:
                return arena.empty(shape, dtype)
            except OutOfMemoryError:
                pass
        raise torch.cuda.OutOfMemoryError

    def close(self) -> None:
        self._arenas.clear()


class Pool(Uncopied):
    """Memory of the heap for tensors of this rank. Collective; num_bytes, too, is the same on all
    ranks, and 0 for a pool that grow() fills.

    The pool of a GPU serves the stream that is current when it grows; tensors of other streams take
    what is left for small ones.
    """

    _all: weakref.WeakSet[Pool] = weakref.WeakSet()

    def __init__(self, comm: Communicator, num_bytes: int = 0, *,
                 when_full: WhenFull = WhenFull.NOTHING):
        self.comm, self._when_full = comm, when_full
        self.num_bytes = 0
        self._memory: Any = None  # while it is 0 or nothing can be had
        self._num_not_asked = self._times_left = 0
        self._device = torch.device(f"cuda:{comm.cuda_device}" if comm.is_on_gpu else "cpu")
        Pool._all.add(self)
        comm.pools.add(self)
        self.grow(num_bytes)

    def grow(self, num_bytes: int) -> None:
        """Has at least so many bytes from now on. Collective, and nothing if it has them."""
        if num_bytes <= self.num_bytes:
            return
        # More than any part of what there is, so that PyTorch takes none of that instead.
        added = max(num_bytes, 2 * self.num_bytes, SMALL_BYTES if self.comm.is_on_gpu else 0)
        added = -(-added // SEGMENT_BYTES) * SEGMENT_BYTES
        arena = Arena(self.comm, added)
        self.num_bytes += added
        _collect()
        try:
            if self._memory is None:
                kind = _CudaMemory if self.comm.is_on_gpu else _HostMemory
                self._memory = kind(self.comm, self._when_full)
            self._memory.add(arena, added)
            self._num_not_asked = self._times_left = 0
        except (RuntimeError, OSError, AttributeError) as error:
            self.close()  # old PyTorch has no such pools, some has none beside expandable segments
            warnings.warn(f"weft: tensors cannot be allocated in the heap, so that they are "
                          f"copied: {error}", stacklevel=2)

    def reclaim(self) -> None:
        """Takes back what streams of record_stream() have passed; else that waits until there is no
        room, which takes PyTorch some time to find out."""
        if self._memory is not None:
            self._memory.reclaim()

    def empty(self, *arrays: Array, is_capturing: bool | None = None) -> list[torch.Tensor]:
        """A tensor for each (shape, dtype): in the heap, or ordinary ones if they find no room.
        is_capturing: whether the current stream is, if the caller has asked PyTorch already."""
        if is_capturing is None:
            is_capturing = self._is_capturing()
        if self._memory is not None and not is_capturing:
            if self._times_left == 0:
                try:
                    made = self._memory.empty(arrays)
                    self._num_not_asked = 0
                    return made
                except torch.cuda.OutOfMemoryError:  # which takes PyTorch some time
                    self._num_not_asked = min(2 * self._num_not_asked + 1, MOST_NOT_ASKED)
                    self._times_left = self._num_not_asked
            else:
                self._times_left -= 1
        return [torch.empty(shape, dtype=dtype, device=self._device) for shape, dtype in arrays]

    def _is_capturing(self) -> bool:
        """Graphs write their outputs when they are replayed, also those that Python has dropped;
        PyTorch gives them memory of their own."""
        return self.comm.is_on_gpu and torch.cuda.is_current_stream_capturing()

    @property
    def mem_pool(self) -> Any:
        """For torch.cuda.use_mem_pool(), on machine cuda; None if there is none."""
        return self._memory and self._memory.mem_pool

    def close(self) -> None:
        """Allocates nothing more. Tensors stay as they are, and keep the communicator's memory."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()

    def destroy(self) -> None:
        """close(), and gives back what nobody uses."""
        self.close()
        _collect()

    def __del__(self):
        if hasattr(self, "_memory"):  # else __init__ did not run
            self.close()
