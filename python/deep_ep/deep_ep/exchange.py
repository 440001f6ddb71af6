# SPDX-License-Identifier: MIT
"""What the buffers of all versions of DeepEP have: a communicator, the streams of operations, and
pools for their outputs."""
from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Callable

import torch
import weft
from weft.objects import Uncopied
from weft.outputs import Outputs
from weft.torch import Pool, WhenFull, agree_on_id, make_context

from . import settings
from .config import num_nodes_of
from .events import EventHandle, EventOverlap, current_stream, on_stream

TIMEOUT_MS = 200_000  # ranks compile kernels between calls


class Runtime:
    """What callers ask DeepEP's C++ object."""

    def __init__(self, num_ranks: int):
        self._num_ranks = num_ranks

    def is_available(self) -> bool:
        return True

    def get_num_rdma_ranks(self) -> int:
        return num_nodes_of(self._num_ranks)


class Exchange(Uncopied):
    """Part of a buffer. group or comm, of mpi4py, has the ranks; sizes are arguments of
    settings.of_rank()."""

    def _meet(self, group: Any, comm: Any, sizes: tuple[Any, ...],
              timeout_ms: int = 0) -> tuple[int, int]:
        """Makes the communicator. Returns this rank, and how many there are. Collective."""
        if group is not None:
            rank, num_ranks = group.rank(), group.size()
        elif comm is not None:
            rank, num_ranks = comm.Get_rank(), comm.Get_size()
        else:
            raise ValueError("Either group or comm must be given")

        def gather(mine: Any) -> list[Any]:
            if group is None:
                return comm.allgather(mine)
            everybody: list[Any] = [None] * num_ranks
            torch.distributed.all_gather_object(everybody, mine, group)
            return everybody

        self.group = group
        self._settings = settings.agree(gather, *sizes)
        make_context()  # so that weft takes the device of this process
        self._comm = weft.Communicator(agree_on_id(rank, gather), rank, num_ranks,
                                       timeout_ms=timeout_ms or TIMEOUT_MS)
        self.runtime: Runtime | None = Runtime(num_ranks)
        self._lock = threading.RLock()
        # Made now, since nothing can be made while a graph is captured.
        self._comm_stream = self._callers_stream = self._last_stream = None
        self._callers_outputs, self._outputs_of_comm_stream = Pool(self._comm), Pool(self._comm)
        self._answers: Pool | None = None
        if self._comm.is_on_gpu:
            self._comm_stream = torch.cuda.Stream(self._device(), priority=-1)
            self._has_begun, self._has_ended = torch.cuda.Event(), torch.cuda.Event()
        return rank, num_ranks

    def _leave(self) -> None:
        """Waits for all ranks, and ends the communicator. Collective."""
        self._comm.check()
        with suppress(weft.RankFailedError):  # a rank that has left needs nothing of this one
            self._comm.host_barrier()
        self._close()
        self._comm.destroy()
        self.runtime = None

    def _close(self) -> None:
        """What keeps the communicator."""

    def _pool_bytes(self) -> int:
        """As much as callers have asked for. Memory of the host is allocated when it is needed."""
        wished = self._settings.pool_bytes
        return max(wished, self._settings.num_nvl_bytes) if self._comm.is_on_gpu else wished

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

    def get_comm_stream(self) -> Any:
        return self._comm_stream

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

    def _blocks_of(self, num_sms: int) -> int:
        return min(num_sms, 256) if self._comm.is_on_gpu else 0


def _tensors(values: Any):
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, Outputs):
        yield from _tensors(values.tensors())
