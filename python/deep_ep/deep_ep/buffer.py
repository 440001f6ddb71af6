# SPDX-License-Identifier: MIT
"""Buffer: DeepEP's normal dispatch and combine on weft."""
from __future__ import annotations

import os
import threading
from typing import Any, Callable

import torch
import weft
from weft.expert_parallel import ints_at
from weft.outputs import Outputs
from weft.torch import Pool, WhenFull, agree_on_id, make_context

from . import config as configs
from .arrival import Arrival
from .config import RANKS_PER_NODE, Config, num_nodes_of
from .events import EventHandle, EventOverlap, current_stream, on_stream, without_modes
from .landing import ALIGNMENT_BYTES, Landing
from .low_latency import LowLatencyFunctions
from .routing import (Handle, HandlePool, Placeholders, Routing, internode_handle,
                      intranode_handle)

TIMEOUT_MS = 200_000  # ranks compile kernels between calls
MAX_RANKS_WITHOUT_TOPK = 64  # that one token goes to
BATCHES_IN_POOL = 3  # whose rows are in use at a time; there is room for one more


class _Runtime:
    """What callers ask DeepEP's C++ object."""

    def __init__(self, num_ranks: int):
        self._num_ranks = num_ranks

    def is_available(self) -> bool:
        return True

    def get_num_rdma_ranks(self) -> int:
        return num_nodes_of(self._num_ranks)


class Buffer(LowLatencyFunctions):
    """Communication of a group of ranks. Constructor and destroy() are collective, and so are all
    operations. The sizes of buffers are not needed, since weft sizes its own."""

    num_sms = 20

    def __init__(self, group: Any, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0,
                 low_latency_mode: bool = False, num_qps_per_rank: int = 24,
                 allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False,
                 explicitly_destroy: bool = False, enable_shrink: bool = False,
                 comm: Any = None) -> None:
        if group is not None:
            self.rank, self.group_size = group.rank(), group.size()
        elif comm is not None:
            self.rank, self.group_size = comm.Get_rank(), comm.Get_size()
        else:
            raise ValueError("Either group or comm must be given")
        self.group = group
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode, self.enable_shrink = low_latency_mode, enable_shrink
        self.explicitly_destroy = explicitly_destroy
        make_context()  # so that weft takes the device of this process
        unique_id = agree_on_id(self.rank, lambda mine: self._gather(mine, comm))
        self._comm = weft.Communicator(unique_id, self.rank, self.group_size,
                                       timeout_ms=TIMEOUT_MS)
        self.runtime: _Runtime | None = _Runtime(self.group_size)
        self._handles, self._landing = HandlePool(self._comm), Landing(self._comm)
        self._placeholders = Placeholders(self._device())
        self._lock = threading.RLock()
        # Made now, since nothing can be made while a graph is captured.
        self._comm_stream = self._callers_stream = self._last_stream = None
        self._callers_outputs, self._outputs_of_comm_stream = Pool(self._comm), Pool(self._comm)
        self._answers: Pool | None = None
        if self._comm.is_on_gpu:
            self._comm_stream = torch.cuda.Stream(self._device(), priority=-1)
            self._has_begun, self._has_ended = torch.cuda.Event(), torch.cuda.Event()
        self._captured: list[Routing] = []  # which graphs use
        self._local: dict[bool, torch.Tensor] = {}
        self._open_low_latency()

    def _gather(self, mine: Any, comm: Any) -> list[Any]:
        if self.group is None:
            return comm.allgather(mine)
        everybody: list[Any] = [None] * self.group_size
        torch.distributed.all_gather_object(everybody, mine, self.group)
        return everybody

    def destroy(self) -> None:
        assert self.explicitly_destroy, "explicitly_destroy must be set"
        self._comm.host_barrier()
        self._handles.close()
        self._landing.close()
        self._comm.destroy()
        self.runtime = None

    def _pool_bytes(self) -> int:
        """As much as callers have asked for. Memory of the host is allocated when it is needed."""
        wished = int(os.environ.get("WEFT_DEEP_EP_POOL_BYTES", 0))
        return max(wished, self.num_nvl_bytes) if self._comm.is_on_gpu else wished

    @property
    def pool(self) -> Any:
        """A torch.cuda.MemPool over weft's heap; None on machine cpu. What experts write to tensors
        of torch.cuda.use_mem_pool(buffer.pool), combine reads where it is. It is made, for the
        stream that is current then, when it is asked for first, which is collective. Not for
        graphs."""
        if self._answers is None and self._comm.is_on_gpu:
            outputs = self._callers_outputs, self._outputs_of_comm_stream
            num_bytes = max(self._pool_bytes(), *(pool.num_bytes for pool in outputs))
            self._answers = Pool(self._comm, num_bytes,
                                 when_full=WhenFull.DEVICE_MEMORY)
        return self._answers and self._answers.mem_pool

    # ------------------------------------------------------------ what callers ask

    @staticmethod
    def is_sm90_compiled() -> bool:
        return True  # FP8 rows are on every machine

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        assert new_num_sms % 2 == 0, "The SM count must be even"
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int,
                                       num_ranks: int, num_experts: int) -> int:
        return configs.low_latency_size_hint(num_max_dispatch_tokens_per_rank, hidden, num_experts)

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        return configs.dispatch_config(Buffer.num_sms, num_ranks)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        return configs.combine_config(Buffer.num_sms, num_ranks)

    def get_comm_stream(self) -> Any:
        return self._comm_stream

    def get_local_buffer_tensor(self, dtype: torch.dtype, size: torch.Size | None = None,
                                offset: int = 0, use_rdma_buffer: bool = False) -> torch.Tensor:
        """Memory of the size that was asked for, which weft does not use; offset in bytes."""
        if use_rdma_buffer not in self._local:
            num_bytes = self.num_rdma_bytes if use_rdma_buffer else self.num_nvl_bytes
            self._local[use_rdma_buffer] = torch.zeros(
                num_bytes, dtype=torch.uint8, device=self._device())
        whole = self._local[use_rdma_buffer][offset:]
        whole = whole[:whole.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        return whole if size is None else whole[:size.numel()].view(size)

    def _device(self) -> torch.device:
        return torch.device("cpu" if self._comm.cuda_device is None
                            else f"cuda:{self._comm.cuda_device}")

    # ------------------------------------------------------------ streams

    def _run(self, operation: Callable[[Pool], tuple[Any, Any]], inputs: Any,
             previous_event: Any = None, async_finish: bool = False) -> tuple[Any, EventOverlap]:
        """Runs an operation, with the pool of its stream; on machine cpu at once. It returns what
        the caller gets, and which tensors of that it has made."""
        with self._lock:
            if not self._comm.is_on_gpu:
                outputs, _ = operation(self._callers_outputs)
                return outputs, EventOverlap(EventHandle() if async_finish else None)
            current, previous = current_stream(), getattr(previous_event, "event", None)
            assert current != self._comm_stream, "the current stream is the communication stream"
            if not async_finish and previous is None and self._serves(current):
                return operation(self._callers_outputs)[0], EventOverlap()
            return self._run_aside(operation, inputs, current, previous, async_finish)

    def _serves(self, current: torch.cuda.Stream) -> bool:
        """Whether an operation that is waited for runs on the caller's stream, where nothing has to
        be told to another one. A pool serves one stream: the first. Graphs use none."""
        if torch.cuda.is_current_stream_capturing():
            return True
        if self._callers_stream is None:
            self._callers_stream = current
        if current != self._callers_stream:
            return False
        self._follow_last(current)
        return True

    def _follow_last(self, stream: torch.cuda.Stream) -> None:
        """Operations use the same memory one after the other, also on different streams."""
        if self._last_stream not in (None, stream):
            self._has_ended.record(self._last_stream)
            stream.wait_event(self._has_ended)
        self._last_stream = stream

    def _run_aside(self, operation: Callable[[Pool], tuple[Any, Any]], inputs: Any,
                   current: torch.cuda.Stream, previous: Any, async_finish: bool
                   ) -> tuple[Any, EventOverlap]:
        """On the communication stream."""
        comm_stream = self._comm_stream
        if not torch.cuda.is_current_stream_capturing():
            self._follow_last(comm_stream)
            self._outputs_of_comm_stream.reclaim()
        if previous is None:
            self._has_begun.record(current)
            comm_stream.wait_event(self._has_begun)
        with on_stream(comm_stream, current):
            if previous is not None:
                previous.current_stream_wait()
            outputs, made = operation(self._outputs_of_comm_stream)
            event = EventHandle() if async_finish else None
        for tensor in _tensors(made):
            tensor.record_stream(current)
        if async_finish:
            for tensor in _tensors(inputs):
                tensor.record_stream(comm_stream)
        else:
            self._has_ended.record(comm_stream)
            current.wait_event(self._has_ended)
        return outputs, EventOverlap(event)

    def _is_capturing(self) -> bool:
        return self._comm.is_on_gpu and torch.cuda.is_current_stream_capturing()

    def _num_blocks(self, config: Config | None) -> int:
        if not self._comm.is_on_gpu:
            return 0
        return min(config.num_sms if config else Buffer.num_sms, 256)

    # ------------------------------------------------------------ normal operations

    @without_modes
    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int,
                            previous_event: Any = None, async_finish: bool = False,
                            allocate_on_comm_stream: bool = False) -> tuple[Any, ...]:
        def layout(_: Pool) -> tuple[Any, Any]:
            routing = self._handles.take(*topk_idx.shape, num_experts, 1)
            if self._is_capturing():
                self._captured.append(routing)
            tables = routing.handle.layout(topk_idx, with_tables=True)
            is_token_in_rank = tables.is_token_in_rank.view(torch.bool)
            made = (tables.num_tokens_per_rank, self._tokens_per_node(is_token_in_rank),
                    tables.num_tokens_per_expert, is_token_in_rank)
            return made, made

        outputs, event = self._run(layout, topk_idx, previous_event, async_finish)
        return *outputs, event

    def _tokens_per_node(self, is_token_in_rank: torch.Tensor) -> torch.Tensor | None:
        """By DeepEP's nodes."""
        if self.group_size <= RANKS_PER_NODE:
            return None
        num_nodes = num_nodes_of(self.group_size)
        num_absent = num_nodes * RANKS_PER_NODE - self.group_size
        by_node = torch.nn.functional.pad(is_token_in_rank, (0, num_absent)).view(
            -1, num_nodes, RANKS_PER_NODE)
        return by_node.any(2).sum(0, dtype=torch.int32)

    @without_modes
    def dispatch(self, x: Any, handle: Handle | None = None,
                 num_tokens_per_rank: torch.Tensor | None = None,
                 num_tokens_per_rdma_rank: torch.Tensor | None = None,
                 is_token_in_rank: torch.Tensor | None = None,
                 num_tokens_per_expert: torch.Tensor | None = None,
                 topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
                 expert_alignment: int = 1, num_worst_tokens: int = 0,
                 config: Config | None = None, previous_event: Any = None,
                 async_finish: bool = False,
                 allocate_on_comm_stream: bool = False) -> tuple[Any, ...]:
        num_blocks = self._num_blocks(config)

        def arrival_of(routing: Routing, *, with_src_token: bool) -> Arrival:
            planes = (x[0], x[1].contiguous()) if isinstance(x, tuple) else (x,)
            return Arrival(routing, planes, topk_idx, topk_weights, with_src_token=with_src_token,
                           num_blocks=num_blocks, is_capturing=self._is_capturing())

        def cached(outputs: Pool) -> tuple[Any, Any]:
            made = self._receive(arrival_of(handle.weft, with_src_token=False), outputs)
            return (tuple(made) if isinstance(x, tuple) else made[0], None, None, None, None), made

        def routed(outputs: Pool) -> tuple[Any, Any]:
            num_topk = min(self.group_size, MAX_RANKS_WITHOUT_TOPK) if topk_idx is None \
                else topk_idx.shape[1]
            routing = self._handles.take(len(is_token_in_rank), num_topk,
                                         num_tokens_per_expert.numel(), expert_alignment)
            routing.handle.layout_by_table(is_token_in_rank, num_tokens_per_expert)
            routing.handle.notify()
            arrival = arrival_of(routing, with_src_token=True)
            counts = self._count(routing, num_worst_tokens)
            made = self._receive(arrival, outputs)
            *received, src_token = made
            if topk_idx is None:
                received += [None, None]
            *rows, recv_topk_idx, recv_topk_weights = received
            per_expert = ints_at(counts.num_recv_per_expert, counts.num_local_experts)
            return ((tuple(rows) if isinstance(x, tuple) else rows[0], recv_topk_idx,
                     recv_topk_weights, per_expert,
                     self._handle(routing, src_token, is_token_in_rank, config)), made)

        if handle is not None:
            assert topk_idx is None and topk_weights is None, "a handle comes without top-k"
        else:
            assert is_token_in_rank is not None and num_tokens_per_expert is not None
            assert (topk_idx is None) == (topk_weights is None), "both of top-k, or none"
            assert num_worst_tokens == 0 or topk_idx is not None, "num_worst_tokens needs top-k"
        outputs, event = self._run(routed if handle is None else cached,
                                   (x, topk_idx, topk_weights, is_token_in_rank,
                                    num_tokens_per_expert), previous_event, async_finish)
        return *outputs, event

    @staticmethod
    def _count(routing: Routing, num_worst_tokens: int) -> weft.abi.EpCounts:
        """Sets how many rows come; without a wait, and counts, if the caller knows the most."""
        if num_worst_tokens:
            routing.num_rows = routing.max_rows = num_worst_tokens
            return weft.abi.EpCounts()
        counts = routing.handle.wait_raw_counts()
        routing.num_rows, routing.max_rows = counts.num_recv_tokens, counts.max_recv_tokens
        return counts

    def _receive(self, arrival: Arrival, outputs: Pool) -> list[torch.Tensor]:
        """Rows arrive in tensors of the pool, or, if they found no room there, are copied to
        them."""
        self._make_room(arrival, outputs)
        arrays = arrival.arrays()
        made = outputs.empty(*arrays, is_capturing=arrival.is_capturing)
        if self._comm.is_direct(made[0]):
            arrival.receive(made)
            return made
        landed = [self._landing.take(*array) for array in arrays]
        arrival.receive(landed)
        for tensor, at in zip(made, landed):
            tensor.copy_(at)
        return made

    def _make_room(self, arrival: Arrival, outputs: Pool) -> None:
        """The pool grows on all ranks together, by the most rows that one of them gets."""
        num_bytes = arrival.num_bytes(arrival.routing.max_rows)
        self._landing.begin(num_bytes)
        if arrival.is_capturing:
            self._keep_for_graphs(arrival.routing)
        elif BATCHES_IN_POOL * num_bytes > outputs.num_bytes:
            outputs.grow(max((BATCHES_IN_POOL + 1) * num_bytes, self._pool_bytes()))

    def _keep_for_graphs(self, routing: Routing) -> None:
        """Replays use the handle, and where rows land."""
        self._captured.append(routing)
        self._landing.keep()

    def _handle(self, routing: Routing, src_token: torch.Tensor, is_token_in_rank: torch.Tensor,
                config: Config | None) -> Handle:
        ends = routing.row_ends()
        num_channels = (config.num_sms if config else Buffer.num_sms) // 2
        if self.group_size <= RANKS_PER_NODE:
            return intranode_handle(routing, ends, src_token, is_token_in_rank, num_channels,
                                    self._placeholders)
        return internode_handle(routing, ends, is_token_in_rank,
                                num_nodes_of(self.group_size), num_channels,
                                self._placeholders)

    @without_modes
    def combine(self, x: torch.Tensor, handle: Handle, topk_weights: torch.Tensor | None = None,
                bias: Any = None, config: Config | None = None, previous_event: Any = None,
                async_finish: bool = False,
                allocate_on_comm_stream: bool = False) -> tuple[Any, ...]:
        routing = handle.weft
        biases = bias if isinstance(bias, tuple) else (bias,)
        assert x.is_contiguous() and x.shape[0] == routing.num_rows, \
            f"x has {x.shape[0]} rows, its dispatch {routing.num_rows}"

        def summed(_: Pool) -> tuple[Any, Any]:
            num_topk = 0 if topk_weights is None else topk_weights.shape[1]
            self._landing.begin(routing.max_rows * (x.shape[1] * x.element_size() + 4 * num_topk)
                                + 2 * ALIGNMENT_BYTES)
            if self._is_capturing():
                self._keep_for_graphs(routing)
            weights = None if topk_weights is None else self._reached(topk_weights)
            out = routing.handle.combine(self._reached(x), bias=biases, topk_weights=weights,
                                         num_blocks=self._num_blocks(config))
            made = (out, None) if weights is None else out
            return made, made

        outputs, event = self._run(summed, (x, topk_weights, biases), previous_event,
                                   async_finish)
        return *outputs, event

    def _reached(self, tensor: torch.Tensor) -> torch.Tensor:
        """Where other ranks read it."""
        return tensor if self._comm.is_direct(tensor) else self._landing.place(tensor)

    internode_dispatch, internode_combine = dispatch, combine


def _tensors(values: Any):
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, Outputs):
        yield from _tensors(values.tensors())
