# SPDX-License-Identifier: MIT
"""Communicators, the heap, arenas, registered memory."""
import gc
import pickle

import numpy as np
import pytest
import weft
import weft.shared_memory
from ranks import launch, on_ranks, run


@on_ranks(4, num_nodes=2)
def test_communicator(comm):
    assert comm.num_ranks == 4 and comm.machine == weft.Machine.CPU
    assert [comm.node(r) for r in range(5)] == [0, 0, 1, 1, -1]
    assert comm.team(weft.Team.LOCAL) == [comm.rank & 2, comm.rank | 1]
    assert comm.team(weft.Team.RAIL) == [comm.rank & 1, 2 + (comm.rank & 1)]
    for like in (bytes, bytearray, np.uint8):
        mine = np.array([65 + comm.rank], np.uint8) if like is np.uint8 else \
            like([65 + comm.rank])
        assert comm.host_all_gather(mine) == [b"A", b"B", b"C", b"D"]
    with pytest.raises(TypeError):
        comm.host_all_gather("ABCD")
    for call in (lambda: comm.node(2**32), lambda: comm.split(2**31),
                 lambda: comm.on_rank(np.zeros(1), 2**32)):
        with pytest.raises(weft.InvalidArgumentError,
                           match=f"is ({2**32}|{2**31}), allowed are -{2**31}..{2**31 - 1}"):
            call()
    with pytest.raises(TypeError, match="rank is '0'; it must be an integer"):
        comm.node("0")
    comm.barrier()
    odd = comm.split(comm.rank % 2 if comm.rank < 3 else -1, key=-comm.rank)
    assert (odd is None) == (comm.rank == 3)
    if odd:
        assert odd.num_ranks == (2 if comm.rank % 2 == 0 else 1)
        assert odd.parent_rank(0) == (2 if comm.rank % 2 == 0 else 1)
        odd.destroy()
    strided = comm.split_strided(0, 3, 2)
    assert (strided is None) == (comm.rank in (1, 2))
    assert comm.net().engine


def test_from_env():
    done = launch(3, "import weft\nwith weft.Communicator.from_env() as c:\n"
                     "    print(c.rank, c.num_ranks)")
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [f"[{r}] {r} 3" for r in range(3)]


@on_ranks(2)
def test_heap(comm):
    shared = comm.heap_empty((3, 5), np.int64)
    shared[:] = comm.rank
    comm.host_barrier()
    other = comm.on_rank(shared, 1 - comm.rank)
    assert other.shape == (3, 5) and (other == 1 - comm.rank).all()
    comm.host_barrier()
    assert comm.on_rank(np.zeros(3), 0) is None
    assert comm.heap_empty(0, np.float32).shape == (0,)
    used = comm.heap_info().used_bytes
    comm.heap_free(shared)
    assert comm.heap_info().used_bytes < used
    for dtype, name in ((weft.Dtype.BF16, "uint16"), ("bfloat16", "uint16"),
                        (weft.Dtype.FP8_E4M3, "uint8"), ("float16", "float16"),
                        (np.dtype(np.int8), "int8"), (bool, "bool")):
        assert comm.heap_empty(2, dtype).dtype == name
    assert comm.heap_empty(np.int32(2), np.float32).shape == (2,)
    for shape, dtype, message in ((3, np.complex64, "complex64"),
                                  ((2, -1), np.float32, r"shape is \[2, -1\]")):
        with pytest.raises(weft.InvalidArgumentError, match=message):
            comm.heap_empty(shape, dtype)
    with pytest.raises(weft.InvalidArgumentError):
        comm.heap_free(np.zeros(3))


@on_ranks(2)
def test_mismatch_of_sizes(comm):
    with pytest.raises(weft.MismatchError):
        comm.heap_empty(3 + comm.rank, np.float64)
    comm.check()  # it goes on


@on_ranks(2)
def test_arena(comm):
    arena = weft.Arena(comm, 4096 * (comm.rank + 1))
    part = None
    for _ in range(100):  # what is dropped comes back
        del part
        array = arena.empty((30, 32), np.float32)
        part = array[3:5]
        del array
        part[:] = 7
    with pytest.raises(weft.OutOfMemoryError, match="free"):
        arena.empty(4096 * (comm.rank + 1), np.uint8)
    del part
    assert arena.empty(4096 * (comm.rank + 1), np.uint8).nbytes == 4096 * (comm.rank + 1)
    gone = arena.empty(5, np.int32)
    arena.destroy()
    gone[:] = 3
    with pytest.raises(weft.InvalidArgumentError, match="arena has been destroyed"):
        arena.empty(1, np.int8)


@on_ranks(2)
def test_register(comm):
    own = np.ones(5000, np.float32)
    is_direct = comm.register(own if comm.rank == 0 else None)
    assert isinstance(is_direct, bool)
    weft.Collectives(comm).all_reduce(own, own)
    assert (own == 2).all()
    comm.unregister(own if comm.rank == 0 else None)


@on_ranks(2)
def test_arrays_keep_the_communicator(comm):
    array = comm.heap_empty(1 << 16, np.uint8)
    native = comm._native
    comm.destroy()
    comm.destroy()
    array[:] = 5  # still there
    assert native.address is not None
    for call in (comm.barrier, comm.host_barrier, lambda: comm.heap_empty(1, np.int8),
                 lambda: weft.Stream(comm), lambda: weft.ExpertParallel(comm, 4)):
        with pytest.raises(weft.InvalidArgumentError, match="comm has been destroyed"):
            call()
    view = array[5:7].view(np.int16)
    del array
    gc.collect()
    assert view[0] == 0x505 and native.address is not None
    del view
    gc.collect()
    assert native.address is None


def test_errors_are_pickled():
    error = weft.RankFailedError("rank 3 died", rank=3)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is weft.RankFailedError and str(copy) == "rank 3 died"
    assert copy.rank == 3 and copy.code == weft.Result.ERROR_RANK_FAILED
    assert isinstance(error, ConnectionError)


def test_bad_ids():
    with pytest.raises(TypeError, match="heap_bytes is 1.5; it must be an integer"):
        weft.Communicator(weft.unique_id(), 0, 1, heap_bytes=1.5)
    for bad in (b"", b"x" * 127, "x" * 128):
        with pytest.raises(weft.InvalidArgumentError, match="unique_id"):
            weft.Communicator(bad, 0, 1)
    with pytest.raises(weft.InvalidArgumentError,
                       match="num_ranks is 4294967297, allowed are -2147483648..2147483647"):
        weft.Communicator(weft.unique_id_at("localhost", 4700, "0123456789abcdef" * 2), 0,
                          2**32 + 1)
    with pytest.raises(weft.InvalidArgumentError, match="secret"):
        weft.unique_id_at("localhost", 4700, "no secret")
    assert len(weft.unique_id_at("localhost", 4700, "0123456789abcdef" * 2)) == 128


def test_shared_blocks():
    """Every rank writes into all ranks' blocks, which are of no communicator."""
    def share(comm):
        memory = weft.shared_memory.HostMemory()
        mine, handle = memory.allocate(100)
        assert len(handle) == 64 and memory.read(mine, 100) == bytes(100)
        handles = comm.host_all_gather(handle)
        blocks = [mine if r == comm.rank else memory.open(h) for r, h in enumerate(handles)]
        for r, block in enumerate(blocks):
            memory.write(block + comm.rank, bytes([10 * r + comm.rank + 1]))
        comm.host_barrier()
        for r, block in enumerate(blocks):
            assert memory.read(block, 4) == bytes([10 * r + 1, 10 * r + 2, 10 * r + 3, 0])
        comm.host_barrier()
        for block in blocks:
            memory.release(block)
        reused, _ = memory.allocate(100)  # the same descriptor
        comm.host_barrier()
        with pytest.raises(weft.InvalidArgumentError, match="that process [0-9]+ has freed"):
            memory.open(handles[(comm.rank + 1) % 3])
        comm.host_barrier()
        memory.release(reused)
        comm.host_barrier()
        for refused, message in ((lambda: memory.open(handles[(comm.rank + 1) % 3]),
                                  "does not share any more"),
                                 (lambda: memory.open(bytes(64)), "not one of memory of the host"),
                                 (lambda: memory.release(mine), "is no block")):
            with pytest.raises(weft.InvalidArgumentError, match=message):
                refused()
        with pytest.raises(weft.OutOfMemoryError, match="-1 bytes"):
            memory.allocate(-1)

    run(share, 3)
