# SPDX-License-Identifier: MIT
"""Objects end in any order, interpreters without them, forks, threads, ranks that die."""
import gc
import multiprocessing
import os
import random
import signal
import threading
import time
import weakref

import numpy as np
import pytest
import weft
from ranks import LIMIT_S, launch, on_ranks, run


def everything(comm):
    """One of each kind of object, some used, and arrays of theirs."""
    ep = weft.ExpertParallel(comm, 8)
    arena = weft.Arena(comm, 1 << 16)
    coll = weft.Collectives(comm)
    handles = [ep.handle(2) for _ in range(3)]
    stream, event = weft.Stream(comm), weft.Event(comm)
    ll = weft.LowLatency(ep, 16, 4, 2, np.float32)
    ids = np.array([[0, 5], [4, -1]])
    handles[0].layout(ids, stream)
    handles[0].notify(stream)
    rows = handles[0].dispatch(np.ones((2, 16), np.float32), arena=arena, stream=stream)
    sums = handles[0].combine(rows.x, stream=stream)
    coll.all_reduce(sums, stream=stream)
    event.record(stream)
    return [ep, arena, coll, *handles, stream, event, ll, rows, sums,
            comm.heap_empty(100, np.int8), comm.split(0), comm]


@on_ranks(2)
def test_any_order(comm):
    for seed in range(12):
        objects = everything(comm.split(0))
        random.Random(10 * seed + comm.rank).shuffle(objects)
        if seed % 3 == 0:  # by reference counts, one by one
            while objects:
                objects.pop()
        elif seed % 3 == 1:  # a cycle, which the collector ends as it likes
            objects.append(objects)
            del objects
            gc.collect()
        else:
            for each in objects:
                if hasattr(each, "destroy"):
                    each.destroy()
    x = np.ones(3, np.float32)
    assert weft.Collectives(comm).all_reduce(x)[0] == comm.num_ranks


@on_ranks(3)
def test_grow(comm):
    """The first two ranks have a communicator. The third one joins them, and then it is a rank of
    one that outlives theirs."""
    config = {"machine": weft.Machine.CPU, "timeout_ms": 60000}
    is_new = comm.rank == 2
    pair = comm.split(-1 if is_new else 0)
    mine = pair.unique_id() if comm.rank == 0 else bytes(128)
    unique_id = comm.host_all_gather(mine)[0]
    if is_new:
        grown = weft.Communicator(unique_id, 2, 3, **config)
        assert [grown.parent_rank(rank) for rank in range(3)] == [-1, -1, -1]
    else:
        with pytest.raises(weft.InvalidArgumentError, match="num_ranks is 1, allowed are 2"):
            pair.grow(1, unique_id)
        with pytest.raises(weft.InvalidArgumentError, match="id is NULL on all ranks"):
            pair.grow(3)
        grown = pair.grow(3, unique_id if comm.rank == 1 else None, **config)
        assert [grown.parent_rank(rank) for rank in range(3)] == [0, 1, -1]
        pair.destroy()
    assert (grown.rank, grown.num_ranks) == (comm.rank, 3)
    total = weft.Collectives(grown).all_reduce(np.full(5, 1 + grown.rank, np.float32))
    assert (total == 6).all()
    grown.destroy()


@on_ranks(2)
def test_operations_keep_arrays(comm):
    coll = weft.Collectives(comm)
    stream, other, event = weft.Stream(comm), weft.Stream(comm), weft.Event(comm)
    for how in ("stream", "event", "other stream"):
        comm.host_barrier()
        if comm.rank == 1:
            time.sleep(0.2)
        x = np.ones(1 << 16, np.float32)
        is_gone = weakref.ref(x)
        out = coll.all_reduce(x, stream=stream)
        del x
        if comm.rank == 0:  # rank 1 has not come yet, as a rule
            assert is_gone() is not None
        event.record(stream)
        if how == "stream":
            stream.synchronize()
        elif how == "event":
            event.synchronize()
        else:
            other.wait_event(event)
            other.synchronize()
        assert (out == 2).all() and is_gone() is None, how


@on_ranks(2)
def test_dropped_stream_finishes(comm):
    coll = weft.Collectives(comm)
    out = np.zeros(1000, np.float32)
    stream = weft.Stream(comm)
    coll.all_reduce(np.ones(1000, np.float32), out, stream=stream)
    del stream
    assert (out == 2).all()


BODY = """
import sys, os, time, weft, numpy as np
comm = weft.Communicator.from_env(timeout_ms=60000)
coll = weft.Collectives(comm)
stream = weft.Stream(comm)
x = np.ones(100000, np.float32)
heap = comm.heap_empty(100, np.int8)
cycle = [comm, coll, stream]; cycle.append(cycle)
"""


def test_exit_without_destroy():
    """What is queued is finished, also for those who are late."""
    done = launch(3, BODY + "coll.all_reduce(x, x)\n"
                            "time.sleep(0.3 * comm.rank)\n"
                            "coll.all_reduce(x, x, stream=stream)\n"
                            "if comm.rank == 2: stream.synchronize(); print(x[0])")
    assert done.returncode == 0 and done.stdout == "[2] 9.0\n" and done.stderr == "", done


def test_exit_by_an_exception():
    """The others learn at once, though the deadline is a minute away."""
    done = launch(2, BODY + """
try:
    if comm.rank == 1:
        coll.all_reduce(x, x, stream=stream)
        raise KeyError("own mistake")
    for _ in range(2):
        coll.all_reduce(x, x)
except weft.Error as error:
    print(type(error).__name__)
""", "--grace=60")
    assert "KeyError: 'own mistake'" in done.stderr
    assert "[0] AbortedError" in done.stdout, done


def test_exception_in_with():
    done = launch(2, """
import weft
with weft.Communicator.from_env(timeout_ms=60000) as comm:
    array = comm.heap_empty(5, 'int8')
    if comm.rank == 1:
        raise KeyError("own mistake")
    comm.host_barrier()
""", "--grace=60")
    assert "AbortedError" in done.stderr and "KeyError" in done.stderr, done


def test_rank_that_dies():
    def lose(comm):
        coll = weft.Collectives(comm)
        x = np.ones(10, np.float32)
        coll.all_reduce(x)
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(weft.RankFailedError) as caught:
            for _ in range(3):
                coll.all_reduce(x)
        assert caught.value.rank == 2 and "2" in str(caught.value)
        with pytest.raises(weft.RankFailedError):
            comm.check()

    with pytest.raises(AssertionError) as caught:
        run(lose, 3)
    assert str(caught.value).strip() == "rank 2: died"


def test_timeout_names_the_rank():
    has_passed = multiprocessing.get_context("fork").Event()

    def wait(comm):
        if comm.rank == 0:
            with pytest.raises(weft.WaitTimeoutError) as caught:
                weft.Collectives(comm)
            assert isinstance(caught.value, TimeoutError) and "rank 1" in str(caught.value)
            has_passed.set()
        else:
            assert has_passed.wait(LIMIT_S)

    run(wait, 2, timeout_ms=2000)


def test_fork():
    def fork(comm):
        coll = weft.Collectives(comm)
        x = np.ones(10, np.float32)
        objects = [comm, coll, weft.Stream(comm), comm.heap_empty(5, np.int8)]
        child = os.fork()
        if child == 0:
            try:
                for call in (lambda: coll.all_reduce(x), comm.host_barrier, comm.check,
                             lambda: comm.heap_empty(3, np.int8)):
                    with pytest.raises(weft.InvalidArgumentError, match="fork"):
                        call()
                comm.destroy()
                objects.clear()
                gc.collect()
                alone = weft.Communicator(weft.unique_id(), 0, 1, machine=weft.Machine.CPU)
                assert weft.Collectives(alone).all_reduce(x)[0] == 1
                alone.destroy()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert coll.all_reduce(x)[0] == 2

    run(fork, 2)


def test_threads_as_ranks():
    """Which shows, too, that waits release the GIL."""
    unique_id, results = weft.unique_id(), {}

    def be_rank(rank):
        with weft.Communicator(unique_id, rank, 3, machine=weft.Machine.CPU) as comm:
            coll = weft.Collectives(comm)
            for i in range(20):
                results[rank, i] = coll.all_reduce(np.full(5, rank + i, np.int32))[0]

    threads = [threading.Thread(target=be_rank, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {(rank, i): 3 + 3 * i for rank in range(3) for i in range(20)}


def test_threads_share_objects():
    """An object is in one call at a time; the library need not be told."""
    comm = weft.Communicator(weft.unique_id(), 0, 1, machine=weft.Machine.CPU)
    coll, arena, failures = weft.Collectives(comm), weft.Arena(comm, 1 << 20), []

    def work(seed):
        try:
            for i in range(200):
                out = arena.empty(100, np.int32)
                coll.all_reduce(np.full(100, seed + i, np.int32), out)
                assert (out == seed + i).all()
                if i % 50 == 0:
                    gc.collect()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(1000 * t,)) for t in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    comm.destroy()
