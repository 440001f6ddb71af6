# SPDX-License-Identifier: MIT
"""The C functions through which PyTorch allocates in arenas, called as PyTorch calls them."""
import ctypes
import random
import threading

import weft
from ranks import on_ranks
from weft.allocator import LIBRARY, Allocator
from weft.library import lib

KIB = 1024
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


class Outside:
    """Memory of no arena, with limits; it knows what is allocated."""

    def __init__(self, limit=1 << 30):
        self.blocks, self.limit = {}, limit
        self.alloc = ctypes.CFUNCTYPE(
            ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)(self._alloc)
        self.free = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._free)

    def _alloc(self, ptr, num_bytes):
        if num_bytes > self.limit:
            return 2
        ptr[0] = libc.malloc(num_bytes)
        self.blocks[ptr[0]] = num_bytes
        return 0

    def _free(self, ptr):
        del self.blocks[ptr]
        libc.free(ptr)
        return 0


class Functions:
    """An allocator's, of PyTorch's signatures."""

    def __init__(self, allocator):
        library = ctypes.CDLL(LIBRARY)
        alloc, free = (getattr(library, name) for name in allocator.names)
        alloc.restype = ctypes.c_void_p
        alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.alloc = lambda num_bytes: alloc(num_bytes, 0, None)
        self.free = lambda ptr, num_bytes: free(ptr, num_bytes, 0, None)


def opened(comm, outside, *arena_bytes):
    allocator = Allocator((outside.alloc, outside.free))
    arenas = [weft.Arena(comm, num_bytes) for num_bytes in arena_bytes]
    for arena in arenas:
        allocator.add(arena._native)
    return allocator, Functions(allocator), arenas


def is_in_heap(comm, ptr):
    return bool(lib.weft_heap_ptr(comm._native.pointer(), ptr, comm.rank))


@on_ranks(1)
def test_arenas_and_outside(comm):
    outside = Outside(limit=512 * KIB)
    allocator, memory, _ = opened(comm, outside, 64 * KIB, 128 * KIB)
    first, second = memory.alloc(48 * KIB), memory.alloc(100 * KIB)
    assert is_in_heap(comm, first) and is_in_heap(comm, second) and not outside.blocks
    third = memory.alloc(48 * KIB)  # no arena has room
    assert not is_in_heap(comm, third) and outside.blocks == {third: 48 * KIB}
    assert memory.alloc(513 * KIB) is None and allocator.num_blocks() == 2
    memory.free(first, 48 * KIB)
    assert memory.alloc(48 * KIB) == first
    memory.free(third, 48 * KIB)
    assert not outside.blocks
    memory.free(0xbad, 1)  # is not its own
    allocator.close()
    allocator.give_back()
    allocator = Allocator()
    allocator.add(weft.Arena(comm, 64 * KIB)._native)
    memory = Functions(allocator)
    assert is_in_heap(comm, memory.alloc(48 * KIB)) and memory.alloc(48 * KIB) is None


@on_ranks(1)
def test_threads(comm):
    """All of an arena is there again when many threads have allocated and freed."""
    outside = Outside()
    allocator, memory, _ = opened(comm, outside, 256 * KIB)
    wrong = []

    def work(seed):
        choose, mine = random.Random(seed), []
        for _ in range(400):
            if mine and (len(mine) > 8 or choose.random() < 0.5):
                ptr, num_bytes = mine.pop(choose.randrange(len(mine)))
                if ctypes.string_at(ptr, num_bytes) != bytes([seed]) * num_bytes:
                    wrong.append(ptr)
                memory.free(ptr, num_bytes)
            else:
                num_bytes = choose.randrange(1, 20 * KIB)
                mine.append((memory.alloc(num_bytes), num_bytes))
                ctypes.memset(mine[-1][0], seed, num_bytes)
        for ptr, num_bytes in mine:
            memory.free(ptr, num_bytes)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and not outside.blocks and allocator.num_blocks() == 0
    assert is_in_heap(comm, memory.alloc(256 * KIB))
    allocator.close()
    allocator.give_back()


@on_ranks(1)
def test_ends_before_its_memory(comm):
    """PyTorch frees late: the arena has ended, or the communicator, or nothing calls any more."""
    outside = Outside()
    child = comm.split(0)
    allocator, memory, arenas = opened(child, outside, 64 * KIB)
    inner, other = memory.alloc(KIB), memory.alloc(100 * KIB)
    allocator.close()
    arenas[0].destroy()
    later = memory.alloc(KIB)  # as if the arenas were full
    assert set(outside.blocks) == {other, later} and allocator.num_blocks() == 1
    child.destroy()
    allocator.give_back()
    assert memory.alloc(KIB) is None
    for ptr, num_bytes in ((inner, KIB), (other, 100 * KIB), (later, KIB)):
        memory.free(ptr, num_bytes)
    assert allocator.num_blocks() == 0 and not outside.blocks


@on_ranks(1)
def test_limits(comm):
    """A pool is open again when it was given back and all of its memory is free, not before."""
    outside = Outside()
    allocator, memory, _ = opened(comm, outside, 64 * KIB)
    kept = memory.alloc(KIB)
    allocator.give_back()
    others = []
    try:
        while True:
            others.append(Allocator((outside.alloc, outside.free)))
    except weft.OutOfMemoryError as error:
        assert "too many pools" in str(error)
    names = {other.names for other in others}
    assert len(names) == len(others) > 10 and allocator.names not in names
    memory.free(kept, KIB)
    assert Allocator((outside.alloc, outside.free)).names == allocator.names
    try:
        for _ in range(100):
            others[0].add(comm._native)  # never used
    except weft.OutOfMemoryError as error:
        assert "too many arenas" in str(error)
