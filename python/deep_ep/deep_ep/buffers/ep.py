# SPDX-License-Identifier: MIT
"""EPBuffer, which callers of DeepEP 2.5 make: ElasticBuffer under its new name."""
from __future__ import annotations

from typing import Any

from weft.eager import eager_methods

from ..events import EventOverlap
from .copies import ExpertCopies, plan_and_bytes
from .elastic import ElasticBuffer


class Deferred(EventOverlap):
    """An operation whose results are there after the wait."""

    def __init__(self, results: tuple[Any, ...], event: EventOverlap):
        super().__init__(event.event)
        self._results = results

    def current_stream_wait(self, release_handle: bool = False) -> tuple[Any, ...]:
        super().current_stream_wait(release_handle)
        return self._results


@eager_methods
class EPBuffer(ExpertCopies, ElasticBuffer):
    """As ElasticBuffer, with what 2.5 has changed: a handle shares topk_idx, the end of an
    operation may be deferred, and redundant experts get their weights from their owners."""

    def __init__(self, group: Any, num_bytes: int | None = None, num_max_tokens_per_rank: int = 0,
                 hidden: int = 0, num_topk: int = 0, use_fp8_dispatch: bool = False,
                 lb_allocation_plan_or_num_bytes: Any = 0, deterministic: bool = False,
                 allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True,
                 prefer_overlap_with_compute: bool = True, sl_idx: int | None = None,
                 num_allocated_qps: int = 0, num_cpu_timeout_secs: int = 300,
                 num_gpu_timeout_secs: int = 100, explicitly_destroy: bool = False) -> None:
        # Before a communicator is made, which a refused argument would leave.
        plan, self.num_lb_bytes = plan_and_bytes(lb_allocation_plan_or_num_bytes)
        super().__init__(
            group, num_bytes, 0, num_max_tokens_per_rank, hidden, num_topk, use_fp8_dispatch,
            deterministic, allow_hybrid_mode, allow_multiple_reduction,
            prefer_overlap_with_compute, sl_idx or 0, num_allocated_qps, num_cpu_timeout_secs,
            num_gpu_timeout_secs, explicitly_destroy)
        self._open_copies(plan)

    def barrier(self, wait_comm_stream: bool = True, with_cpu_sync: bool = False,
                sequential: bool = True) -> None:
        super().barrier(True, with_cpu_sync, sequential)

    def dispatch(self, *arguments: Any, do_handle_copy: bool = False, defer_epilogue: bool = False,
                 **named: Any) -> Any:
        return _deferred(super().dispatch, defer_epilogue, arguments,
                         named | {"do_handle_copy": do_handle_copy})

    def combine(self, *arguments: Any, defer_epilogue: bool = False, **named: Any) -> Any:
        return _deferred(super().combine, defer_epilogue, arguments, named)

    def print_memory_usage(self) -> None:
        heap = self._comm.heap_info()
        print(f"rank {self.rank_idx}: {heap}", flush=True)


def _deferred(operation: Any, is_deferred: bool, arguments: tuple[Any, ...],
              named: dict[str, Any]) -> Any:
    if not is_deferred:
        return operation(*arguments, **named)
    *results, event = operation(*arguments, **named | {"async_with_compute_stream": True})
    return Deferred(tuple(results), event)
