# SPDX-License-Identifier: MIT
"""torch.distributed's backend "weft": docs/torch-distributed.md.

    torch.distributed.init_process_group("weft")

Each operation is enqueued on a stream of the group's; what is left to do when it has run (copies to
the tensors of a list) is done by whoever finds that it has.
"""
from __future__ import annotations

import atexit
import pickle
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .abi import Machine
from .collectives import Collectives
from .communicator import Communicator
from .library import Error, InvalidArgumentError, UnsupportedError, lib
from .torch import agree_on_id, make_context
from .torch_barrier import Absent, meet, milliseconds
from .torch_lanes import (Call, CudaLane, Lane, bytes_of, check_rows, is_plain, plain,
                          split_rows)
from .torch_messages import Messages
from .torch_reductions import add_sparse
from .torch_works import Work

NO_COLOR = -1


class Backend(c10d.Backend):
    """weft, as a backend of a process group of PyTorch's, for tensors of the host and of a GPU."""

    alive: set[Backend] = set()  # PyTorch may keep but the part of it that is C++

    def __init__(self, store: Any, rank: int, num_ranks: int, options: Any,
                 comm: Communicator | None = None):
        super().__init__(rank, num_ranks)
        self._store, self._options = store, options
        self._made = threading.local()  # the last call's work, for Group
        self._num_calls = self._num_barriers = 0
        self._lanes: dict[str, Lane] = {}
        if comm is None:
            comm = self._meet(Machine.CPU)
        self._lanes["cpu"] = Lane(comm)
        self._messages = Messages(comm)
        Backend.alive.add(self)

    def _meet(self, machine: Machine) -> Communicator:
        rank, num_ranks, store = self.rank(), self.size(), self._store
        prefix, num_gathered = f"weft/{machine.name}", 0

        def gather(mine: Any) -> list[Any]:
            nonlocal num_gathered
            num_gathered += 1
            keys = [f"{prefix}/{num_gathered}/{peer}" for peer in range(num_ranks)]
            store.set(keys[rank], pickle.dumps(mine))
            return [pickle.loads(store.get(key)) for key in keys]

        return Communicator(agree_on_id(rank, gather), rank, num_ranks, machine=machine,
                            timeout_ms=milliseconds(self._options._timeout))

    def _lane(self, tensor: torch.Tensor) -> Lane:
        lane = self._lanes.get("cpu" if tensor.is_cpu else tensor.device.type)
        if lane is None:
            if tensor.device.type != "cuda":
                raise UnsupportedError(f"a tensor is on {tensor.device}; backend weft has those "
                                       "of the host and of CUDA")
            make_context()
            lane = self._lanes["cuda"] = CudaLane(self._meet(Machine.CUDA))
        return lane

    def _call(self, tensor: torch.Tensor, opts: Any) -> Call:
        self._num_calls += 1
        return Call(self._lane(tensor), opts.asyncOp)

    def _done(self, call: Call, result: list[Any]) -> Work:
        return self._told(call.work(result))

    def _told(self, work: Work) -> Work:
        self._made.work = work
        return work

    def last_work(self) -> Work | None:
        """Of the calling thread's last call, once."""
        return self._made.__dict__.pop("work", None)

    # ------------------------------------------------------------ what PyTorch asks

    @property
    def options(self) -> Any:
        return self._options

    def _get_sequence_number_for_group(self) -> int:
        return self._num_calls

    def _set_sequence_number_for_group(self) -> None:
        self._num_calls = 0

    # All of these, for PyTorch asks the C++ class, which asks this one.
    supports_splitting = property(lambda self: True)
    supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = \
        _supports_time_estimate = property(lambda self: False)

    def getBackendName(self) -> str:
        return "weft"

    def eager_connect_single_device(self, device: torch.device) -> None:
        self._lane(torch.empty(0, device=device))

    # ------------------------------------------------------------ reductions

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        if tensors[0].is_sparse:
            return self._told(Work([add_sparse(tensors[0], opts.reduceOp, self._gather_uneven)]))
        call = self._call(tensors[0], opts)
        for tensor in tensors:
            inout = call.output(tensor, is_input=True)
            call.reduce(lib.weft_coll_all_reduce, inout, inout, opts.reduceOp)
        return self._done(call, tensors)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        call = self._call(tensors[0], opts)
        is_root = opts.rootRank == self.rank()
        for tensor in tensors:
            inout = call.output(tensor, is_input=True) if is_root else plain(tensor)
            call.reduce(lib.weft_coll_reduce, inout, inout if is_root else None, opts.reduceOp,
                        opts.rootRank)
        return self._done(call, tensors)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor],
                                        inputs: list[torch.Tensor], opts: Any) -> Work:
        call = self._call(outputs[0], opts)
        for output, rows in zip(outputs, inputs):
            check_rows("input", rows, "output", output, self.size())
            call.reduce(lib.weft_coll_reduce_scatter, plain(rows), call.output(output),
                        opts.reduceOp)
        return self._done(call, outputs)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]],
                       opts: Any) -> Work:
        call = self._call(outputs[0], opts)
        for output, rows in zip(outputs, inputs):
            recv = call.output(output)
            if all(row.numel() == output.numel() for row in rows):
                send = torch.cat([row.reshape(-1) for row in rows])
                call.reduce(lib.weft_coll_reduce_scatter, send, recv, opts.reduceOp)
                continue
            for root, row in enumerate(rows):
                call.reduce(lib.weft_coll_reduce, plain(row),
                            recv if root == self.rank() else None, opts.reduceOp, root)
        return self._done(call, outputs)

    # ------------------------------------------------------------ what moves bytes

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        call = self._call(tensors[0], opts)
        for tensor in tensors:
            inout = call.output(tensor, is_input=True)
            call.enqueue(lib.weft_coll_broadcast, inout, inout, inout.nbytes, root=opts.rootRank)
        return self._done(call, tensors)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor],
                                    inputs: list[torch.Tensor], opts: Any) -> Work:
        call = self._call(outputs[0], opts)
        for output, row in zip(outputs, inputs):
            check_rows("output", output, "input", row, self.size())
            call.enqueue(lib.weft_coll_all_gather, plain(row), call.output(output), row.nbytes)
        return self._done(call, outputs)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor],
                  opts: Any) -> Work:
        call = self._call(inputs[0], opts)
        for rows, row in zip(outputs, inputs):
            send = plain(row)
            if all(recv.nbytes == send.nbytes for recv in rows):
                call.receive_list(lib.weft_coll_all_gather, send, rows)
            else:
                call.exchange([send] * self.size(), rows)
        return self._done(call, outputs)

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor],
                            opts: Any) -> Work:
        """outputs: by rank, not by input."""
        return self.allgather([list(rows) for rows in zip(*outputs)], inputs, opts)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor],
               opts: Any) -> Work:
        call = self._call(inputs[0], opts)
        for i, row in enumerate(inputs):
            send = plain(row)
            if opts.rootRank != self.rank():
                call.enqueue(lib.weft_coll_gather, send, None, send.nbytes, root=opts.rootRank)
                continue
            for recv in outputs[i]:
                check_rows("a tensor of gather_list", recv, "tensor", row, 1)
            call.receive_list(lib.weft_coll_gather, send, outputs[i], root=opts.rootRank)
        return self._done(call, outputs)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]],
                opts: Any) -> Work:
        call = self._call(outputs[0], opts)
        for i, output in enumerate(outputs):
            send = None
            if opts.rootRank == self.rank():
                for row in inputs[i]:
                    check_rows("a tensor of scatter_list", row, "tensor", output, 1)
                send = torch.cat([bytes_of(plain(row)) for row in inputs[i]])
            recv = call.output(output)
            call.enqueue(lib.weft_coll_scatter, send, recv, recv.nbytes, root=opts.rootRank)
        return self._done(call, outputs)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor,
                          output_split_sizes: list[int], input_split_sizes: list[int],
                          opts: Any) -> Work:
        call = self._call(output, opts)
        if not output_split_sizes and not input_split_sizes:
            check_rows("output", output, "input", input, 1)
            if input.numel() % self.size() != 0:
                raise InvalidArgumentError(f"input has {input.numel()} elements; that must be a "
                                           f"multiple of the number of ranks, {self.size()}")
            call.enqueue(lib.weft_coll_all_to_all, plain(input), call.output(output),
                         input.nbytes // self.size())
        else:
            received = call.output(output)
            call.exchange(split_rows(plain(input), input_split_sizes, "input", self.size()),
                          split_rows(received, output_split_sizes, "output", self.size()))
        return self._done(call, [output])

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                 opts: Any) -> Work:
        call = self._call(outputs[0], opts)
        call.exchange(inputs, outputs)
        return self._done(call, outputs)

    def _gather_uneven(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """All ranks' tensors, whose first dimensions may differ. Waits."""
        call = Call(self._lane(tensor), False)
        size = torch.tensor([tensor.shape[0]], device=tensor.device)
        sizes = size.new_empty(self.size())
        call.enqueue(lib.weft_coll_all_gather, size, sizes, size.nbytes)
        call.work([])
        rows = [tensor.new_empty((num_rows, *tensor.shape[1:])) for num_rows in sizes.tolist()]
        call = Call(self._lane(tensor), False)
        call.exchange([tensor] * self.size(), rows)
        call.work([])
        return rows

    # ------------------------------------------------------------ point to point

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Work:
        return self._transfer(tensors, peer, tag, Messages.send, Collectives.send)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Work:
        return self._transfer(tensors, peer, tag, Messages.receive, Collectives.recv)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        return self._transfer(tensors, None, tag, Messages.receive, None)

    def _transfer(self, tensors: list[torch.Tensor], peer: int | None, tag: int, by_tag: Any,
                  in_order: Any) -> Work:
        """On the host by tags, on a GPU in the order of streams."""
        tensor, = tensors
        lane = self._lane(tensor)
        if lane.comm.is_on_gpu:
            if in_order is None:
                raise UnsupportedError("src is not given; tensors on a GPU come from a rank")
            call = Call(lane, False)
            in_order(lane.coll, bytes_of(tensor), peer, stream=call.stream)
            return self._done(call, tensors)
        if not is_plain(tensor):
            raise InvalidArgumentError("tensor is not contiguous")
        return self._told(by_tag(self._messages, tensor, peer, tag))

    # ------------------------------------------------------------ barriers

    def barrier(self, opts: Any) -> Work:
        device = opts.device
        lane = self._lanes["cpu"] if device is None or device.type == "cpu" else \
            self._lane(torch.empty(0, device=device))
        call = Call(lane, opts.asyncOp)
        lane.comm.barrier(call.stream)
        work = self._done(call, [])
        if lane.comm.is_on_gpu and not opts.asyncOp:
            torch.cuda.current_stream(lane.comm.cuda_device).synchronize()
        return work

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool) -> None:
        self._num_barriers += 1
        meet(dist.PrefixStore(f"weft/barrier/{self._num_barriers}/", self._store), self.rank(),
             self.size(), opts.timeout, self._options._timeout,
             Absent.ALL if wait_all_ranks else Absent.FIRST)

    # ------------------------------------------------------------ life

    def split(self, store: Any, ranks: list[int], options: Any) -> Backend | None:
        """Collective over the group. None for ranks that are not among `ranks`."""
        ranks = list(ranks)
        is_member = self.rank() in ranks
        comm = self._lanes["cpu"].comm.split(
            min(ranks) if is_member else NO_COLOR, ranks.index(self.rank()) if is_member else 0,
            timeout_ms=milliseconds((options or self._options)._timeout))
        if comm is None:
            return None
        return Backend(store, comm.rank, comm.num_ranks, options or self._options, comm)

    def perform_nocolor_split(self, device: torch.device) -> None:
        self.split(None, [], None)

    def set_timeout(self, timeout: timedelta) -> None:
        raise UnsupportedError("backend weft has the timeout with which a group was made")

    def abort(self) -> None:
        for lane in self._lanes.values():
            lane.comm.abort()

    def shutdown(self) -> None:
        if self._lanes:
            self._messages.close()
        for lane in self._lanes.values():
            lane.comm.destroy()
        self._lanes = {}
        Backend.alive.discard(self)


@atexit.register  # before communicators end, which wait for what is under way
def _close_messages() -> None:
    for backend in list(Backend.alive):
        try:
            backend._messages.close()
        except Error:
            pass  # of a child of a fork, or of a group that has failed
