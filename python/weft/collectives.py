# SPDX-License-Identifier: MIT
"""Collectives: all-reduce, reduce-scatter, all-gather, all-to-all, broadcast, reduce, gather,
scatter."""
from __future__ import annotations

import ctypes
import numbers
from contextlib import contextmanager
from typing import Any, Iterator, Sequence

from . import abi, arrays
from .abi import Algorithm, Collective, ReduceOp
from .communicator import Communicator
from .library import InvalidArgumentError, lib, query
from .objects import Native, Object
from .streams import Stream


class Collectives(Object):
    """Buffers of a communicator's collectives, for operations one after another. Collective.

    choices: algorithms that are pinned, {Collective.ALL_REDUCE: Algorithm.ONESHOT}; further
    settings are those of weft_coll_config.

    The operations take arrays of int32, int64, uint8, bfloat16, float16, float32, float64 or
    float8_e4m3fn, of any size, the same on all ranks; dtype says what elements are where the array
    cannot (BF16 in uint16). They return the output, which is allocated like the input if it is not
    given. Sums have the same bits on every rank and machine. R is the number of ranks. Without a
    stream they return when they are done.
    """

    def __init__(self, comm: Communicator, *, choices: dict[Collective, Algorithm] | None = None,
                 **config: int):
        pinned = [abi.CollChoice(collective=collective, algorithm=algorithm)
                  for collective, algorithm in (choices or {}).items()]
        listed = (abi.CollChoice * len(pinned))(*pinned)
        settings = abi.CollConfig(choices=ctypes.addressof(listed) if pinned else None,
                                  num_choices=len(pinned), **config)
        made = ctypes.c_void_p()
        comm.call(lib.weft_coll_create, comm._native.pointer(), ctypes.byref(settings),
                  ctypes.byref(made))
        self._native = Native("coll", made.value, comm._native, ends_when_dropped=False)
        self.comm = comm
        self._group: _Group | None = None

    def _about(self) -> str:
        return f"on {self.comm}"

    def all_reduce(self, send: Any, recv: Any = None, op: ReduceOp | str = ReduceOp.SUM, *,
                   factor: Any = None, dtype: Any = None, stream: Stream | None = None) -> Any:
        """recv[...] = the reduction of all ranks' send[...]. In place: recv is send.

        op: a ReduceOp, or its name, as "sum".

        factor: this rank's, by which its input is multiplied before it is summed, in fp32, of BF16,
        FP16 or FP32: a number, or an array of one float32, which is read when the operation runs.
        """
        return self._run(lib.weft_coll_all_reduce, send, recv, "same", stream, dtype, factor,
                         op=_reduce_op(op))

    def reduce_scatter(self, send: Any, recv: Any = None, op: ReduceOp | str = ReduceOp.SUM, *,
                       factor: Any = None, dtype: Any = None, stream: Stream | None = None) -> Any:
        """recv[...] = this rank's row of the reduction of all ranks' send[R, ...]. factor: as
        all_reduce's."""
        return self._run(lib.weft_coll_reduce_scatter, send, recv, "row", stream, dtype, factor,
                         op=_reduce_op(op))

    def all_gather(self, send: Any, recv: Any = None, *, dtype: Any = None,
                   stream: Stream | None = None) -> Any:
        """recv[R, ...]: row r is rank r's send[...]. In place: send is this rank's row of recv."""
        return self._run(lib.weft_coll_all_gather, send, recv, "rows", stream, dtype)

    def all_to_all(self, send: Any, recv: Any = None, *, dtype: Any = None,
                   stream: Stream | None = None) -> Any:
        """recv[R, ...]: row r is this rank's row of rank r's send[R, ...]."""
        return self._run(lib.weft_coll_all_to_all, send, recv, "same", stream, dtype)

    def broadcast(self, array: Any, root: int = 0, *, dtype: Any = None,
                  stream: Stream | None = None) -> Any:
        """array[...] = rank root's array[...], in place."""
        return self._run(lib.weft_coll_broadcast, array, array, "same", stream, dtype, root=root)

    def reduce(self, send: Any, recv: Any = None, op: ReduceOp | str = ReduceOp.SUM,
               root: int = 0, *, factor: Any = None, dtype: Any = None,
               stream: Stream | None = None) -> Any:
        """Rank root's recv[...] = the reduction of all ranks' send[...], with the bits of
        all_reduce, and its factor. In place: recv is send. The others' recv is ignored, and they
        get None."""
        return self._run(lib.weft_coll_reduce, send, recv, self._of_root("same", root), stream,
                         dtype, factor, op=_reduce_op(op), root=root)

    def gather(self, send: Any, recv: Any = None, root: int = 0, *, dtype: Any = None,
               stream: Stream | None = None) -> Any:
        """Rank root's recv[R, ...]: row r is rank r's send[...]. In place: send is the root's row
        of recv. The others' recv is ignored, and they get None."""
        return self._run(lib.weft_coll_gather, send, recv, self._of_root("rows", root), stream,
                         dtype, root=root)

    def scatter(self, send: Any, recv: Any = None, root: int = 0, *, dtype: Any = None,
                stream: Stream | None = None) -> Any:
        """recv[...] = this rank's row of rank root's send[R, ...]. The others' send is ignored, and
        they must give recv. In place: recv is the root's row of send."""
        if self.comm.rank == root:
            return self._run(lib.weft_coll_scatter, send, recv, "row", stream, dtype, root=root)
        received = self.comm.view(recv, "recv", writable=True)
        args = abi.CollArgs(recv=received.address, count=received.num_bytes // received.item_bytes,
                            dtype=arrays.weft_dtype(received, dtype, "recv"), root=root)
        self.comm.enqueue(lib.weft_coll_scatter, self._native, args, stream, recv)
        return recv

    def send(self, array: Any, peer: int, *, dtype: Any = None,
             stream: Stream | None = None) -> None:
        """array[...] goes to rank `peer`, which receives it; no other rank need call anything.
        Without a stream, or a group, this returns when the array may be overwritten."""
        sent = self.comm.view(array, "send")
        args = abi.CollSendArgs(send=sent.address, count=sent.num_bytes // sent.item_bytes,
                                dtype=arrays.weft_dtype(sent, dtype, "send"), peer=peer)
        self._transfer(lib.weft_coll_send, args, stream, array)

    def recv(self, array: Any, peer: int, *, dtype: Any = None,
             stream: Stream | None = None) -> Any:
        """array[...] = what rank `peer` sends, in the order in which it does."""
        received = self.comm.view(array, "recv", writable=True)
        args = abi.CollRecvArgs(recv=received.address,
                                count=received.num_bytes // received.item_bytes,
                                dtype=arrays.weft_dtype(received, dtype, "recv"), peer=peer)
        self._transfer(lib.weft_coll_recv, args, stream, array)
        return array

    @contextmanager
    def group(self, stream: Stream | None = None) -> Iterator[None]:
        """Sends and receives inside, without a stream of their own, are done together when it ends,
        in whichever order they are called. A group within a group is part of it, on its stream.
        After an exception nothing of it is done."""
        if self._group is not None:
            with self._inner_group(stream):
                yield
            return
        self.comm.call(lib.weft_coll_group_begin, self._native.pointer(), using=(self._native,))
        self._group = _Group(stream if stream is not None else self.comm._stream_of_thread())
        group = self._group
        try:
            yield
        except BaseException:
            self._refuse_group()
            lib.weft_coll_group_end(self._native.pointer())
            raise
        finally:
            self._group = None
        self.comm.call(lib.weft_coll_group_end, self._native.pointer(),
                       using=(self._native, group.stream._native))
        if group.stream._keeps:
            group.stream.keep(self._native, *group.arrays)
        if stream is None and not self.comm.is_on_gpu:
            group.stream.synchronize()

    @contextmanager
    def _inner_group(self, stream: Stream | None) -> Iterator[None]:
        if stream is not None and stream is not self._group.stream:
            raise InvalidArgumentError("stream is another one than that of the group around")
        try:
            yield
        except BaseException:
            self._refuse_group()
            raise

    def _refuse_group(self) -> None:
        lib.weft_coll_send(self._native.pointer(), None, None)  # is refused, and so the group

    def _transfer(self, function, args: Any, stream: Stream | None, array: Any) -> None:
        if self._group is None:
            self.comm.enqueue(function, self._native, args, stream, array)
            return
        if stream is not None:
            raise InvalidArgumentError("stream must not be given in a group, which has its own")
        self._group.arrays.append(array)
        self.comm.enqueue(function, self._native, args, self._group.stream, array)

    def _of_root(self, form: str, root: int) -> str:
        return form if self.comm.rank == root else "none"

    def _run(self, function, send: Any, recv: Any, form: str, stream: Stream | None, dtype: Any,
             factor: Any = None, **fields: int) -> Any:
        num_ranks = self.comm.num_ranks
        sent = self.comm.view(send, "send")
        is_scattered = form == "row" or function is lib.weft_coll_all_to_all
        if is_scattered and (not sent.shape or sent.shape[0] != num_ranks):
            raise InvalidArgumentError(f"send has shape {sent.shape}; its first dimension must be "
                                       f"the number of ranks, {num_ranks}")
        count = sent.num_bytes // sent.item_bytes // (num_ranks if is_scattered else 1)
        args = abi.CollArgs(send=sent.address, count=count,
                            dtype=arrays.weft_dtype(sent, dtype, "send"), **fields)
        self._set_factor(args, factor)
        if form == "none":
            self.comm.enqueue(function, self._native, args, stream, send, factor)
            return None
        shape = {"same": sent.shape, "row": sent.shape[1:], "rows": (num_ranks, *sent.shape)}[form]
        if recv is None:
            recv = arrays.empty(shape, send)
        received = self.comm.view(recv, "recv", writable=True)
        if received.shape != shape or received.dtype != sent.dtype:
            raise InvalidArgumentError(f"recv is {received.dtype}{list(received.shape)}; it must "
                                       f"be {sent.dtype}{list(shape)}")
        args.recv = received.address
        self.comm.enqueue(function, self._native, args, stream, send, recv, factor)
        return recv

    def _set_factor(self, args: Any, factor: Any) -> None:
        if factor is None and args.op != ReduceOp.PREMUL_SUM:
            return
        if factor is None or args.op not in (ReduceOp.SUM, ReduceOp.PREMUL_SUM):
            name = {op.value: op.name for op in ReduceOp}.get(args.op, args.op)
            raise InvalidArgumentError(f"op is {name} and factor {factor}; a sum may have a "
                                       "factor, and a PREMUL_SUM must")
        args.op = ReduceOp.PREMUL_SUM
        if isinstance(factor, numbers.Real):
            try:
                args.factor = factor
            except OverflowError:
                raise InvalidArgumentError(
                    f"factor is {factor}, allowed are numbers that a float64 holds") from None
            return
        seen = self.comm.view(factor, "factor")
        if seen.dtype != "float32" or seen.num_bytes != seen.item_bytes:
            raise InvalidArgumentError(f"factor is {seen.dtype}{list(seen.shape)}; it must be one "
                                       "float32")
        args.factor_at = seen.address

    def all_to_all_v(self, send: Any, send_counts: Sequence[int], recv_counts: Sequence[int],
                     recv: Any = None, *, dtype: Any = None, stream: Stream | None = None) -> Any:
        """Sends send_counts[r] rows of send to rank r, one after another, and receives
        recv_counts[r] from it. send [sum(send_counts), ...], recv [sum(recv_counts), ...]."""
        sent = self.comm.view(send, "send")
        if not sent.shape:
            raise InvalidArgumentError("send has shape (); allowed is [rows, ...]")
        if {len(send_counts), len(recv_counts)} != {self.comm.num_ranks}:
            raise InvalidArgumentError("send_counts and recv_counts need a number for each of the "
                                       f"{self.comm.num_ranks} ranks")
        if min(*send_counts, *recv_counts) < 0:
            raise InvalidArgumentError(f"send_counts are {list(send_counts)} and recv_counts "
                                       f"{list(recv_counts)}; they must be 0 or more")
        shape = (sum(recv_counts), *sent.shape[1:])
        if recv is None:
            recv = arrays.empty(shape, send)
        received = self.comm.view(recv, "recv", writable=True)
        if sent.shape[0] != sum(send_counts) or received.shape != shape or \
                received.dtype != sent.dtype:
            raise InvalidArgumentError(
                f"send is {sent.dtype}{list(sent.shape)} and recv {received.dtype}"
                f"{list(received.shape)}; counts say {sum(send_counts)} and {sum(recv_counts)} "
                "rows")
        elements = sent.row_bytes // sent.item_bytes
        tables = [_counts_and_offsets(counts, elements) for counts in (send_counts, recv_counts)]
        args = abi.CollAllToAllVArgs(
            send=sent.address, recv=received.address,
            send_counts=ctypes.addressof(tables[0][0]), send_offsets=ctypes.addressof(tables[0][1]),
            recv_counts=ctypes.addressof(tables[1][0]), recv_offsets=ctypes.addressof(tables[1][1]),
            dtype=arrays.weft_dtype(sent, dtype, "send"))
        self.comm.enqueue(lib.weft_coll_all_to_all_v, self._native, args, stream, send, recv)
        return recv

    def algorithm(self, collective: Collective, num_bytes: int) -> Algorithm:
        """Which algorithm an operation of so many bytes would use."""
        return Algorithm(lib.weft_coll_algorithm(self._native.pointer(), collective, num_bytes))

    def explain(self, collective: Collective, num_bytes: int,
                algorithm: Algorithm = Algorithm.AUTO) -> abi.CollExplanation:
        """Which algorithm an operation of so many bytes would use, its reason (CollReason), and,
        over several nodes, expected_us; or the same of a given algorithm."""
        return query(abi.CollExplanation, lib.weft_coll_explain, self._native.pointer(), collective,
                     algorithm, num_bytes)

    @contextmanager
    def record(self) -> Iterator[CollectiveRecord]:
        """Operations that streams under capture record meanwhile find their arrays where they are.
        The streams' captures end inside; the graphs run after it. Collective, at its end."""
        record = CollectiveRecord(self)
        yield record
        record.end()


class CollectiveRecord(Object):
    """What streams under capture record from now on, until end(); Collectives.record() is both.
    destroy() is collective, when its graphs run no more on any rank."""

    def __init__(self, coll: Collectives):
        made = ctypes.c_void_p()
        coll.comm.call(lib.weft_coll_record_begin, coll._native.pointer(), ctypes.byref(made),
                       using=(coll._native,))
        self._native = Native("coll_record", made.value, coll._native, ends_when_dropped=False)
        self.coll = coll

    def end(self) -> None:
        """Lets the ranks reach what was recorded. Collective, when the streams' captures have ended
        and before any of their graphs runs; after an error they must not run."""
        self.coll.comm.call(lib.weft_coll_record_end, self._native.pointer(),
                            using=(self.coll._native,))


def _reduce_op(op: Any) -> Any:
    """The ReduceOp of a member, or of a name. A member of another enumeration counts by its name:
    PyTorch's numbers differ."""
    if isinstance(op, ReduceOp):
        return op
    name = op if isinstance(op, str) else getattr(op, "name", None)
    if name is None:
        return op
    name = {"PRODUCT": "PROD", "MEAN": "AVG"}.get(name.upper(), name.upper())
    if name not in ReduceOp.__members__:
        raise InvalidArgumentError(f"op is {op!r}; it must be one of weft.ReduceOp, "
                                   f"{', '.join(ReduceOp.__members__)}, or its name")
    return ReduceOp[name]


class _Group:
    """The sends and receives of a group that has begun."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self.arrays: list[Any] = []  # until they are enqueued


def _counts_and_offsets(counts: Sequence[int], elements: int):
    array = ctypes.c_int64 * len(counts)
    offsets = [elements * sum(counts[:r]) for r in range(len(counts))]
    return array(*(elements * count for count in counts)), array(*offsets)
