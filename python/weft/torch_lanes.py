# SPDX-License-Identifier: MIT
"""How one call of torch.distributed's becomes operations on streams of a group."""
from __future__ import annotations

import ctypes
from functools import partial
from typing import Any, Callable

import torch

from . import abi
from .abi import Dtype
from .collectives import Collectives
from .communicator import Communicator
from .library import InvalidArgumentError, WaitTimeoutError, check, lib
from .streams import Event, Stream
from .torch_reductions import fold, native_reduction
from .torch_works import CudaWork, StreamWork, Work, of_group, run_steps


def is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy, whose memory has its elements row after row."""
    return tensor if is_plain(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)


def is_one_block(tensors: list[torch.Tensor]) -> bool:
    """Whether they lie side by side in memory."""
    first, size = tensors[0].data_ptr(), tensors[0].nbytes
    return all(is_plain(tensor) and tensor.data_ptr() == first + i * size
               for i, tensor in enumerate(tensors))


def check_rows(name: str, rows: torch.Tensor, row_name: str, row: torch.Tensor,
               num_rows: int) -> None:
    """Checks that a tensor has the elements of so many others."""
    if rows.numel() != row.numel() * num_rows or rows.dtype != row.dtype:
        raise InvalidArgumentError(
            f"{name} is {rows.dtype}{list(rows.shape)}; it must have {num_rows} times as many "
            f"elements as {row_name}, which is {row.dtype}{list(row.shape)}")


def split_rows(tensor: torch.Tensor, sizes: list[int], name: str, num_ranks: int) -> list[Any]:
    """Parts of a tensor by their numbers of rows; without them as many for each rank."""
    if not sizes:
        sizes = [tensor.shape[0] // num_ranks] * num_ranks
    if len(sizes) != num_ranks or sum(sizes) != tensor.shape[0]:
        raise InvalidArgumentError(f"{name} has {tensor.shape[0]} rows and split sizes {sizes}; "
                                   f"they must be {num_ranks}, and add up")
    return list(tensor.split(sizes))


class Lane:
    """What operations of a group run on, for tensors of the host."""

    def __init__(self, comm: Communicator):
        self.comm = comm
        self._stream: Stream | None = None
        self.events: list[Event] = []  # that no work has
        self._coll: Collectives | None = None

    @property
    def coll(self) -> Collectives:
        if self._coll is None:  # the group's first operation that needs it
            try:
                self._coll = Collectives(self.comm)
            except WaitTimeoutError as error:
                raise of_group(error) from None
        return self._coll

    def stream(self, is_async: bool) -> Stream:
        if not is_async:
            return self.comm._stream_of_thread()
        if self._stream is None:
            self._stream = Stream(self.comm)
        return self._stream

    def work(self, stream: Stream, call: Call, result: list[Any], is_async: bool) -> Work:
        if is_async:
            return StreamWork(self, stream, result, call.after)
        try:
            stream.synchronize()
        except WaitTimeoutError as error:
            raise of_group(error) from None
        run_steps(call.after)
        return Work(result)


class CudaLane(Lane):
    """The same for tensors of the GPU. All is in the order of streams: of the current one, or, if
    the caller does not wait, of one that waits for it."""

    def __init__(self, comm: Communicator):
        super().__init__(comm)
        self._side = torch.cuda.Stream(comm.cuda_device)
        self._weft_side = Stream(comm, self._side.cuda_stream)

    def stream(self, is_async: bool) -> Stream:
        if not is_async:
            return self.comm.current_stream()
        self._side.wait_stream(torch.cuda.current_stream(self.comm.cuda_device))
        return self._weft_side

    def work(self, stream: Stream, call: Call, result: list[Any], is_async: bool) -> Work:
        on = self._side if is_async else torch.cuda.current_stream(self.comm.cuda_device)
        with torch.cuda.stream(on):
            run_steps(call.after)
        for tensor in call.used if is_async else ():
            tensor.record_stream(on)
        return CudaWork(on, result)


class Call:
    """One call of torch.distributed's: the operations that it enqueues, and what follows them."""

    __slots__ = ("after", "comm", "is_async", "lane", "stream", "used")

    def __init__(self, lane: Lane, is_async: bool):
        self.lane, self.is_async, self.comm = lane, is_async, lane.comm
        self.stream = lane.stream(is_async)
        self.after: list[Callable[[], Any]] = []
        self.used: list[torch.Tensor] = []

    def work(self, result: list[Any]) -> Work:
        return self.lane.work(self.stream, self, result, self.is_async)

    def output(self, tensor: torch.Tensor, *, is_input: bool = False) -> torch.Tensor:
        """Where a tensor's elements are to arrive, from where they go to it."""
        if is_plain(tensor):
            return tensor
        made = plain(tensor) if is_input else \
            torch.empty_like(tensor, memory_format=torch.contiguous_format)
        self.after.append(partial(tensor.copy_, made))
        return made

    def enqueue(self, function: Any, send: torch.Tensor | None, recv: torch.Tensor | None,
                count: int, dtype: Dtype = Dtype.UINT8, **fields: Any) -> None:
        """An operation of weft_coll on [..., count] elements."""
        used = [tensor for tensor in (send, recv) if tensor is not None]
        args = abi.CollArgs()  # whose checks of what a user gives would take 1 us
        if send is not None:
            args.send = send.data_ptr()
        if recv is not None:
            args.recv = recv.data_ptr()
        args.count, args.dtype = count, dtype
        for name, value in fields.items():
            setattr(args, name, value)
        self.used += used
        self.comm.enqueue(function, self.lane.coll._native, args, self.stream, *used)

    def reduce(self, function: Any, send: torch.Tensor, recv: torch.Tensor | None, op: Any,
               root: int = 0) -> None:
        """By weft's arithmetic, or, where it has no such type or operation, by PyTorch's, of what
        all ranks have sent, in their order."""
        rows = self.comm.num_ranks if function is lib.weft_coll_reduce_scatter else 1
        native = native_reduction(send.dtype, op)
        if native is not None:
            dtype, width, fields = native
            self.enqueue(function, send, recv, send.numel() // rows * width, dtype, root=root,
                         **fields)
            return
        if rows > 1:
            everybody = torch.empty_like(send)
            self.enqueue(lib.weft_coll_all_to_all, send, everybody, send.nbytes // rows)
        elif recv is None:
            self.enqueue(lib.weft_coll_gather, send, None, send.nbytes, root=root)
            return
        else:
            everybody = send.new_empty((self.comm.num_ranks, *send.shape))
            gather = lib.weft_coll_gather if function is lib.weft_coll_reduce else \
                lib.weft_coll_all_gather
            self.enqueue(gather, send, everybody, send.nbytes, root=root)
        everybody = everybody.view(self.comm.num_ranks, *recv.shape)
        self.after.insert(0, lambda: recv.copy_(fold(everybody, op)))  # before output()'s copy

    def receive_list(self, function: Any, send: torch.Tensor, recv: list[torch.Tensor],
                     **fields: Any) -> None:
        """Tensors of one size, side by side."""
        if is_one_block(recv):
            self.used += recv
            block = recv[0]
        else:
            block = send.new_empty((self.comm.num_ranks, send.numel()))
            self.after += [partial(tensor.copy_, row.view(tensor.shape))
                           for tensor, row in zip(recv, block)]
        self.enqueue(function, send, block, send.nbytes, **fields)

    def exchange(self, send: list[torch.Tensor], recv: list[torch.Tensor]) -> None:
        """Tensor r of send goes to rank r, tensor r of recv comes from it; of any sizes."""
        comm, native, stream = self.comm, self.lane.coll._native, self.stream._native
        sent, received = [plain(tensor) for tensor in send], [self.output(x) for x in recv]
        self.used += sent + received
        with native.lock, stream.lock:  # in the order of locks
            coll, on = native.pointer(), stream.pointer()
            check(lib.weft_coll_group_begin(coll))
            for peer, tensor in enumerate(sent):
                args = abi.CollSendArgs(send=tensor.data_ptr() or None, count=tensor.nbytes,
                                        dtype=Dtype.UINT8, peer=peer)
                lib.weft_coll_send(coll, ctypes.byref(args), on)
            for peer, tensor in enumerate(received):
                args = abi.CollRecvArgs(recv=tensor.data_ptr() or None, count=tensor.nbytes,
                                        dtype=Dtype.UINT8, peer=peer)
                lib.weft_coll_recv(coll, ctypes.byref(args), on)
            check(lib.weft_coll_group_end(coll), comm._native.address)  # tells what was refused
        self.stream.last_comm = comm._weak_native
        self.stream.keep(native, *sent, *received)
