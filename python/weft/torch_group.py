# SPDX-License-Identifier: MIT
"""Process groups of backend "weft", and how PyTorch comes to make them."""
from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .torch_backend import Backend

DEVICES = ("cpu", "cuda")


class Group(c10d.ProcessGroup):
    """A process group whose operations return works of weft's own.

    PyTorch hides the work of a backend that is written in Python behind another one, which knows
    nothing but wait() and get_future(). So this group gets it from the backend itself.
    """

    def __init__(self, store: Any, backend: Backend):
        super().__init__(store, backend.rank(), backend.size())
        self._backend, self._has_hooks_of_calls = backend, False
        self._set_default_backend(c10d.ProcessGroup.BackendType.CUSTOM)
        for device in DEVICES:
            self._register_backend(torch.device(device), c10d.ProcessGroup.BackendType.CUSTOM,
                                   backend)

    def getBackendName(self) -> str:
        return "weft"

    def register_pre_hook(self, *arguments: Any) -> None:
        self._has_hooks_of_calls = True
        super().register_pre_hook(*arguments)

    def register_post_hook(self, *arguments: Any) -> None:
        self._has_hooks_of_calls = True
        super().register_post_hook(*arguments)

    def split_group(self, new_ranks: list[int], timeout: timedelta | None = None,
                    opts: Any = None, group_name: str | None = None,
                    group_desc: str | None = None, device_types: Any = None) -> Group | None:
        parent = self._backend.options
        options = opts or make_options(timeout or parent._timeout)
        if timeout is not None:
            options._timeout = timeout
        options.group_name = group_name or ""
        store = dist.PrefixStore(f"{group_name}/", self.get_group_store())
        backend = self._backend.split(store, new_ranks, options)
        if backend is None:
            return None
        group = Group(store, backend)
        group._set_group_name(group_name or "")
        group._set_group_desc(group_desc or "undefined")
        return group


_PLAIN = {torch.Tensor, torch.nn.Parameter}
_LAST_TYPES = {
    "allreduce": c10d.AllreduceOptions, "reduce": c10d.ReduceOptions,
    "reduce_scatter": c10d.ReduceScatterOptions, "reduce_scatter_single": c10d.ReduceScatterOptions,
    "broadcast": c10d.BroadcastOptions, "allgather": c10d.AllgatherOptions,
    "all_gather_single": c10d.AllgatherOptions, "gather": c10d.GatherOptions,
    "scatter": c10d.ScatterOptions, "all_to_all_single": c10d.AllToAllOptions,
    "alltoall": c10d.AllToAllOptions, "send": int, "recv": int, "barrier": c10d.BarrierOptions}


def _are_plain(arguments: Any) -> bool:
    """No subclasses of tensors, also in lists of lists. Others are numbers and options."""
    for argument in arguments:
        if type(argument) is list:
            if not _are_plain(argument):
                return False
        elif isinstance(argument, torch.Tensor) and type(argument) not in _PLAIN:
            return False
    return True


_num_modes, _is_profiled = torch._C._len_torch_dispatch_stack, torch.autograd._profiler_enabled


def _is_watched() -> bool:
    return _num_modes() > 0 or _is_profiled()


def _returning_own_work(name: str) -> Any:
    """A method of Group. PyTorch finds by its name that it has called it. Where nobody looks at
    operations of PyTorch's dispatcher, it goes without, which takes 11 us less of some 28."""
    of_base, of_backend = getattr(c10d.ProcessGroup, name), getattr(Backend, name)
    last_type = _LAST_TYPES.get(name)

    def call(self, *arguments: Any, **options: Any) -> Any:
        backend = self._backend
        given = (*arguments, *options.values()) if len(options) == 1 else arguments
        if given and type(given[-1]) is last_type and not self._has_hooks_of_calls and \
                not _is_watched() and _are_plain(given):
            return of_backend(backend, *given)
        backend.last_work()
        hidden = of_base(self, *arguments, **options)
        return backend.last_work() or hidden

    call.__code__ = call.__code__.replace(co_name=name)
    call.__name__, call.__doc__ = name, of_base.__doc__
    return call


for _name in ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter",
              "reduce_scatter_single", "reduce_scatter_single_coalesced", "broadcast", "allgather",
              "allgather_coalesced", "all_gather_single", "all_gather_single_coalesced", "gather",
              "scatter", "all_to_all_single", "alltoall", "send", "recv", "recv_anysource",
              "barrier"):
    if hasattr(c10d.ProcessGroup, _name):
        setattr(Group, _name, _returning_own_work(_name))


def make_options(timeout: timedelta) -> Any:
    return c10d.Backend.Options("weft", timeout=timeout)


def create(opts: Any, given: Any) -> Any:
    """What init_process_group and new_group call."""
    options = make_options(opts.timeout)
    options.global_ranks_in_group = opts.global_ranks_in_group
    options.group_name = opts.group_id
    backend = Backend(opts.store, opts.group_rank, opts.group_size, options)
    # Beside another backend, or below PyTorch's checks of TORCH_DISTRIBUTED_DEBUG, the group is
    # PyTorch's own.
    is_alone = opts.process_group.name() == "custom"
    if not is_alone or dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return backend
    return Group(opts.store, backend)
