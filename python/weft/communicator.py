# SPDX-License-Identifier: MIT
"""Communicators: who takes part, and the memory that all ranks reach."""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any, Sequence

from . import abi, arrays
from .abi import Machine, Team
from .library import InvalidArgumentError, check, error_of, lib, query
from .objects import Native, Object, call, served_ids
from .streams import Stream


def unique_id() -> bytes:
    """An id by which ranks meet; starts the rendezvous that serves it, in this process, until the
    process ends. Copy it to all ranks by any means."""
    made = query(abi.UniqueId, lib.weft_unique_id_create)
    served_ids.append(made)
    return bytes(made)


def unique_id_at(address: str, port: int, secret: str) -> bytes:
    """The id of a rendezvous at an agreed place. secret: 32 hexadecimal digits, of this job."""
    return bytes(query(abi.UniqueId, lib.weft_unique_id_at, address.encode(), port,
                       secret.encode()))


def serve_rendezvous(unique_id: bytes) -> None:
    """Starts the rendezvous of an id from unique_id_at(), until this process ends."""
    check(lib.weft_rendezvous_serve(_id_of(unique_id)))
    served_ids.append(abi.UniqueId.from_buffer_copy(unique_id))


def rendezvous_num_ranks(unique_id: bytes) -> int:
    """Ranks that are connected to the rendezvous that this process serves; -1 if it serves none."""
    return lib.weft_rendezvous_num_ranks(_id_of(unique_id))


def _id_of(unique_id: bytes):
    if not isinstance(unique_id, bytes) or len(unique_id) != ctypes.sizeof(abi.UniqueId):
        raise InvalidArgumentError("unique_id must be the bytes of unique_id() or unique_id_at()")
    return ctypes.byref(abi.UniqueId.from_buffer_copy(unique_id))


def query_machine(machine: Machine = Machine.AUTO) -> abi.MachineInfo:
    """Whether communicators of this process can be on a machine, and why not."""
    return query(abi.MachineInfo, lib.weft_machine_query, machine)


def query_device(machine: Machine, device_idx: int) -> abi.DeviceInfo:
    """Name, memory and processors of a device."""
    return query(abi.DeviceInfo, lib.weft_device_query, machine, device_idx)


class Communicator(Object):
    """Ranks that have met. Each is a process or a thread.

    unique_id: from unique_id(), the same on all ranks. Further settings are those of
    weft_comm_config: heap_bytes, heap_max_bytes, timeout_ms, num_nodes, machine, num_streams.
    Collective.
    """

    def __init__(self, unique_id: bytes, rank: int, num_ranks: int, **config: int):
        made = ctypes.c_void_p()
        check(lib.weft_comm_create(_id_of(unique_id), rank, num_ranks,
                                   ctypes.byref(abi.CommConfig(**config)), ctypes.byref(made)))
        self._take(made.value)

    @classmethod
    def from_env(cls, **config: int) -> Communicator:
        """Rank, number of ranks and meeting point from the launcher: weft run, torchrun, Open MPI,
        Slurm or PMI; without one a single rank. Collective."""
        made = ctypes.c_void_p()
        check(lib.weft_comm_create_from_env(ctypes.byref(abi.CommConfig(**config)),
                                            ctypes.byref(made)))
        return cls._of(made.value)

    @classmethod
    def _of(cls, address: int) -> Communicator:
        comm = cls.__new__(cls)
        comm._take(address)
        return comm

    def _take(self, address: int) -> None:
        self._native = Native("comm", address)
        self._weak_native = weakref.ref(self._native)
        self._streams = threading.local()
        self.pools: weakref.WeakSet[Any] = weakref.WeakSet()  # weft.torch.Pool
        self.rank: int = lib.weft_comm_rank(address)
        self.num_ranks: int = lib.weft_comm_num_ranks(address)
        self.machine = Machine(lib.weft_comm_machine(address))
        self.is_on_gpu = self.machine == Machine.CUDA
        # As PyTorch counts; None on machine cpu.
        self.cuda_device: int | None = lib.weft_comm_device(address) if self.is_on_gpu else None

    def _about(self) -> str:
        return f"rank {self.rank} of {self.num_ranks}, {self.machine.name}"

    def split(self, color: int, key: int = 0, **config: int) -> Communicator | None:
        """Ranks with the same color form a communicator, ordered by key; None for color -1.
        Collective."""
        return self._split(lib.weft_comm_split, (color, key), config)

    def split_strided(self, first: int, stride: int, num_ranks: int,
                      **config: int) -> Communicator | None:
        """Ranks first, first + stride, ... form a communicator; None for the others. Collective."""
        return self._split(lib.weft_comm_split_strided, (first, stride, num_ranks), config)

    def shrink(self, excluded: Sequence[int] = (), **config: int) -> Communicator:
        """The ranks that live, and are not excluded, form a communicator, in the same order, also
        after a failure. Collective among them; they give the same excluded ranks."""
        listed = (ctypes.c_int32 * len(excluded))(*excluded)
        child = self._split(lib.weft_comm_shrink, (listed, len(excluded)), config)
        assert child is not None
        return child

    def unique_id(self) -> bytes:
        """An id by which new ranks meet those of this communicator, for one grow()."""
        made = abi.UniqueId()
        check(lib.weft_comm_unique_id(self._native.pointer(), ctypes.byref(made)))
        return bytes(made)

    def grow(self, num_ranks: int, unique_id: bytes | None = None, **config: int) -> Communicator:
        """These ranks and new ones form a communicator of num_ranks ranks. These keep their
        numbers; a new rank takes one of those after them, as Communicator(unique_id, rank,
        num_ranks). One of these ranks gives unique_id(), the others may give None. Collective."""
        meeting = _id_of(unique_id) if unique_id is not None else None
        grown = self._split(lib.weft_comm_grow, (meeting, num_ranks), config)
        assert grown is not None
        return grown

    def _split(self, function, arguments: tuple[Any, ...], config) -> Communicator | None:
        child = ctypes.c_void_p()
        self.call(function, self._native.pointer(), *arguments,
                  ctypes.byref(abi.CommConfig(**config)), ctypes.byref(child))
        return Communicator._of(child.value) if child.value else None

    # ------------------------------------------------------------ state

    def check(self) -> None:
        """Raises the communicator's first failure, if there is one."""
        check(lib.weft_comm_status(self._native.pointer(), None), self._native.address)

    def abort(self) -> None:
        """Ends every wait of every rank with AbortedError; then only destroy() is left."""
        check(lib.weft_comm_abort(self._native.pointer()))

    def destroy(self) -> None:
        """Ends it, after its operations that are still queued. Its memory, and then it says goodbye
        to the other ranks, as soon as no array and no tensor of a pool is left that lies there."""
        for pool in list(self.pools):
            pool.destroy()
        super().destroy()

    def __exit__(self, *error) -> None:
        if error[0] is not None and not self._native.has_ended():
            lib.weft_comm_abort(self._native.address)  # nobody is to wait for this rank
        self.destroy()

    def node(self, rank: int) -> int:
        """The node of a rank; -1 if there is no such rank."""
        return lib.weft_comm_node(self._native.pointer(), rank)

    def parent_rank(self, rank: int) -> int:
        """A rank's number in the communicator that this one was split, shrunk or grown from; -1:
        none."""
        return lib.weft_comm_parent_rank(self._native.pointer(), rank)

    def team(self, team: Team) -> list[int]:
        """The ranks of this rank's team of a kind."""
        info = query(abi.TeamInfo, lib.weft_team_query, self._native.pointer(), team)
        return [lib.weft_team_world_rank(self._native.pointer(), team, i)
                for i in range(info.num_ranks)]

    def net(self) -> abi.NetInfo:
        """What carries the traffic between nodes."""
        return query(abi.NetInfo, lib.weft_net_query, self._native.pointer())

    # ------------------------------------------------------------ what it did

    def stats(self) -> abi.Stats:
        """How many operations there were, their bytes, and how long they waited for ranks."""
        return query(abi.Stats, lib.weft_stats_query, self._native.pointer())

    def peer_stats(self, rank: int) -> abi.PeerStats:
        """How long this rank has waited for another one, and how often that came last."""
        return query(abi.PeerStats, lib.weft_stats_query_peer, self._native.pointer(), rank)

    def slowest(self) -> abi.Slowest:
        """The rank that the others wait for, by this rank's evidence; rank -1: there is none."""
        return query(abi.Slowest, lib.weft_stats_query_slowest, self._native.pointer())

    def write_records(self, path: str | None = None) -> None:
        """Writes the flight record of this rank as JSON, for `weft record`. Without a path: into
        the directory that WEFT_RECORD names."""
        check(lib.weft_records_write(self._native.pointer(), path and os.fsencode(path)))

    # ------------------------------------------------------------ calls

    def call(self, function, *arguments, using: tuple[Native, ...] = ()) -> None:
        """Calls a function of the library that uses this communicator."""
        call(function, *arguments, using=(self._native, *using), comm=self._native)

    def enqueue(self, function, subject: Native, args: Any, stream: Stream | None,
                *used: Any) -> None:
        """Enqueues an operation and keeps what it uses. Without a stream: on machine cuda on
        PyTorch's current one, else on one of this thread's own, and waits for it."""
        on = self._stream_of_thread() if stream is None else stream
        arguments = args if isinstance(args, tuple) else (ctypes.byref(args),)
        native = on._native
        with subject.lock, native.lock:  # in the order of locks
            result = function(subject.pointer(), *arguments, native.pointer())
            if result:
                raise error_of(result, self._native.address)
        on.last_comm = self._weak_native
        if stream is None:
            if not self.is_on_gpu:
                on.synchronize()
        elif on._keeps:
            on.keep(subject, *used)

    def current_stream(self) -> Stream | None:
        """On machine cuda PyTorch's current one; else None, as which operations take it that they
        are to have finished when they return."""
        return self._stream_of_thread() if self.is_on_gpu else None

    def _stream_of_thread(self) -> Stream:
        number = arrays.current_stream(self.cuda_device) if self.is_on_gpu else 0
        streams = self._streams.__dict__
        stream = streams.get(number)
        if stream is None:
            stream = streams[number] = Stream(self, number)
        return stream

    def view(self, array: Any, name: str, **wanted: bool) -> arrays.View:
        """What an operation must know of its argument `name`, [...] of any dtype."""
        return arrays.view(array, name, cuda_device=self.cuda_device, **wanted)

    def address_of(self, array: Any, name: str, dtypes: tuple[str, ...],
                   shape: tuple[int | None, ...], *, writable: bool = False) -> int | None:
        """The address of a dense array, whose type is one of dtypes (none: any) and whose shape is
        [*shape] (None: any size)."""
        return arrays.address_of(array, name, dtypes, shape, self.cuda_device, writable)

    def barrier(self, stream: Stream | None = None) -> None:
        """Finishes when every rank has reached it; orders memory. Collective, on a stream."""
        self.enqueue(lib.weft_comm_barrier, self._native, (), stream)

    def host_barrier(self) -> None:
        """Waits, on the host, until all ranks have called it. Collective."""
        self.call(lib.weft_comm_host_barrier, self._native.pointer())

    def host_all_gather(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, as many on each, in rank order. Collective, for set-up."""
        data = bytes(memoryview(data))
        size = len(data)
        received = (ctypes.c_char * (size * self.num_ranks))()
        self.call(lib.weft_comm_host_all_gather, self._native.pointer(), data, size, received)
        return [received.raw[size * r:size * (r + 1)] for r in range(self.num_ranks)]

    # ------------------------------------------------------------ memory

    def heap_empty(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        """An array in the heap, of the same size on all ranks, which all reach. Collective.

        It lasts until heap_free(), or as long as the communicator.
        """
        shape = arrays.as_shape(shape)
        num_bytes = arrays.num_bytes(shape, dtype)
        address = ctypes.c_void_p()
        self.call(lib.weft_heap_alloc, self._native.pointer(), num_bytes, ctypes.byref(address))
        return self.array_at(address.value, num_bytes, shape, dtype)

    def heap_free(self, array: Any) -> None:
        """Gives an array of heap_empty(), [...] of any dtype, back: all ranks the same ones, in the
        same order, when nobody uses them any more."""
        self.call(lib.weft_heap_free, self._native.pointer(), self.view(array, "array").address)

    def is_direct(self, array: Any) -> bool:
        """Whether other ranks reach an array [...] of any type, which is dense, where it is: in the
        heap, or registered. What they do not reach is copied, which takes time, and memory of
        objects that is limited."""
        if arrays.is_tensor(array):
            address, num_bytes = array.data_ptr(), array.nbytes
        else:
            seen = self.view(array, "array")
            address, num_bytes = seen.address, seen.num_bytes
        return lib.weft_memory_is_direct(self._native.pointer(), address, num_bytes) == 1

    def heap_grow(self, num_bytes: int) -> None:
        """Commits memory so that the heap holds at least so much. Collective."""
        self.call(lib.weft_heap_grow, self._native.pointer(), num_bytes)

    def heap_info(self) -> abi.HeapInfo:
        """How much of the heap is committed, and used."""
        return query(abi.HeapInfo, lib.weft_heap_query, self._native.pointer())

    def on_rank(self, array: Any, rank: int) -> Any:
        """Another rank's copy of an array in the heap, [...] of any dtype, where it is mapped in
        this process; None if it cannot be mapped here."""
        seen = self.view(array, "array")
        address = lib.weft_heap_ptr(self._native.pointer(), seen.address, rank)
        if not address:
            return None
        dtype = arrays.dtype_like(array, seen.dtype)
        return self.array_at(address, seen.num_bytes, seen.shape, dtype)

    def register(self, array: Any) -> bool:
        """Lets other ranks reach an array of this rank's, [...] of any dtype, for collectives and
        expert parallelism. None: nothing. True if those of all ranks can be reached. It must stay
        until unregister(). Collective."""
        is_direct = ctypes.c_int32()
        seen = self.view(array, "array") if array is not None else None
        self.call(lib.weft_memory_register, self._native.pointer(), seen and seen.address,
                  seen.num_bytes if seen else 0, ctypes.byref(is_direct))
        return bool(is_direct.value)

    def unregister(self, array: Any) -> None:
        """Ends register() of the same array, [...] of any dtype. Collective."""
        address = self.view(array, "array").address if array is not None else None
        self.call(lib.weft_memory_unregister, self._native.pointer(), address)

    def array_at(self, address: int | None, num_bytes: int, shape: tuple[int, ...], dtype: Any,
                 free=None) -> Any:
        """Memory of the library, which lasts as long as the communicator, as an array."""
        if not address:
            return arrays.no_elements(shape, dtype, self.cuda_device)
        block = arrays.Block(self._native, address, (num_bytes,), self.cuda_device, free=free)
        return arrays.as_array(block, dtype).reshape(shape)


class Arena(Object):
    """A block of the heap from which this rank alone allocates: outputs whose sizes differ by rank.

    Its arrays give their memory back when they are gone. num_bytes may differ by rank. Collective.
    """

    def __init__(self, comm: Communicator, num_bytes: int):
        made = ctypes.c_void_p()
        comm.call(lib.weft_arena_create, comm._native.pointer(), num_bytes, ctypes.byref(made))
        self._native = Native("arena", made.value, comm._native, ends_when_dropped=False)
        self.comm = comm
        self._num_bytes = num_bytes

    def _about(self) -> str:
        return f"of {self._num_bytes} bytes on {self.comm}"

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        """An array; OutOfMemoryError tells how much is free."""
        shape = arrays.as_shape(shape)
        num_bytes = arrays.num_bytes(shape, dtype)
        address = ctypes.c_void_p()
        native = self._native
        call(lib.weft_arena_alloc, native.pointer(), num_bytes, ctypes.byref(address),
             using=(native,))

        def free(address: int) -> None:
            if not native.has_ended():
                with native.lock:
                    lib.weft_arena_free(native.address, address)

        return self.comm.array_at(address.value, num_bytes, shape, dtype, free)

    def place(self, array: Any) -> Any:
        """The array itself, [...] of any dtype, if other ranks reach it, else a copy from here that
        they do: for inputs of combine() without staging_bytes."""
        seen = self.comm.view(array, "array", dense=False)
        if seen.strides is None and self.comm.is_direct(array):
            return array
        copy = self.empty(seen.shape, arrays.dtype_like(array, seen.dtype))
        copy[...] = array
        return copy
