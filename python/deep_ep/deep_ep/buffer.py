# SPDX-License-Identifier: MIT
"""Buffer, which DeepEP's callers make, and the streams of its operations."""
from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Callable

import torch
import weft
from weft.eager import eager_methods
from weft.objects import Uncopied
from weft.outputs import Outputs
from weft.torch import Pool, WhenFull, agree_on_id, make_context

from . import config as configs
from . import settings
from .config import Config, num_nodes_of
from .events import EventHandle, EventOverlap, current_stream, on_stream
from .low_latency import LowLatencyFunctions
from .normal import NormalFunctions

TIMEOUT_MS = 200_000  # ranks compile kernels between calls


class _Runtime:
    """What callers ask DeepEP's C++ object."""

    def __init__(self, num_ranks: int):
        self._num_ranks = num_ranks

    def is_available(self) -> bool:
        return True

    def get_num_rdma_ranks(self) -> int:
        return num_nodes_of(self._num_ranks)


@eager_methods
class Buffer(NormalFunctions, LowLatencyFunctions, Uncopied):
    """Communication of a group of ranks. Constructor and destroy() are collective, and so are all
    operations. The sizes of buffers are not needed, since weft sizes its own. use_fabric (SGLang)
    and num_nvl_peers (TensorRT-LLM) change nothing: weft finds out how ranks reach each other."""

    num_sms = 20

    def __init__(self, group: Any, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0,
                 low_latency_mode: bool = False, num_qps_per_rank: int = 24,
                 allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False,
                 explicitly_destroy: bool = False, enable_shrink: bool = False,
                 comm: Any = None, use_fabric: bool | None = None,
                 num_nvl_peers: int | None = None) -> None:
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
        self._settings = settings.agree(lambda mine: self._gather(mine, comm), enable_shrink,
                                        num_nvl_bytes, num_rdma_bytes)
        make_context()  # so that weft takes the device of this process
        unique_id = agree_on_id(self.rank, lambda mine: self._gather(mine, comm))
        self._comm = weft.Communicator(unique_id, self.rank, self.group_size,
                                       timeout_ms=TIMEOUT_MS)
        self.runtime: _Runtime | None = _Runtime(self.group_size)
        self._lock = threading.RLock()
        # Made now, since nothing can be made while a graph is captured.
        self._comm_stream = self._callers_stream = self._last_stream = None
        self._callers_outputs, self._outputs_of_comm_stream = Pool(self._comm), Pool(self._comm)
        self._answers: Pool | None = None
        if self._comm.is_on_gpu:
            self._comm_stream = torch.cuda.Stream(self._device(), priority=-1)
            self._has_begun, self._has_ended = torch.cuda.Event(), torch.cuda.Event()
        self._local: dict[bool, torch.Tensor] = {}
        self._open_normal()
        self._open_low_latency()

    def _gather(self, mine: Any, comm: Any) -> list[Any]:
        if self.group is None:
            return comm.allgather(mine)
        everybody: list[Any] = [None] * self.group_size
        torch.distributed.all_gather_object(everybody, mine, self.group)
        return everybody

    def destroy(self) -> None:
        assert self.explicitly_destroy, "explicitly_destroy must be set"
        self._comm.check()
        with suppress(weft.RankFailedError):  # a rank that has left needs nothing of this one
            self._comm.host_barrier()
        self._close_normal()
        self._comm.destroy()
        self.runtime = None

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
        if not isinstance(config, (Config, type(None))):
            raise weft.InvalidArgumentError(
                f"config is a {type(config).__name__}; it must be a Config")
        if not self._comm.is_on_gpu:
            return 0
        return min(config.num_sms if config else Buffer.num_sms, 256)


def _tensors(values: Any):
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, Outputs):
        yield from _tensors(values.tensors())
