# SPDX-License-Identifier: MIT
"""Puts weft.custom_all_reduce into the places of vLLM's, SGLang's and FlashInfer's operations.
Their classes stay as they are. docs/custom-all-reduce.md tells how it is switched on.

Nothing but the standard library is imported before one of their modules is.
"""
from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any, Callable, NamedTuple

_OPS = ("init_custom_ar", "register_buffer", "all_reduce", "get_graph_buffer_ipc_meta",
        "register_graph_buffers", "dispose")
_OPS_OF_VLLM = (*_OPS, "meta_size", "allocate_shared_buffer_and_handle", "open_mem_handle",
                "free_shared_buffer", "custom_all_gather", "custom_reduce_scatter")


class Place(NamedTuple):
    """What is replaced in a module, and what is added only where it has none of its own."""

    replaced: dict[str, str]  # name there: name in weft.custom_all_reduce
    added: dict[str, str]


PLACES = {
    "vllm._custom_ops": Place(
        {name: name for name in _OPS_OF_VLLM} |
        {"mnnvl_lamport_all_gather": "custom_all_gather",
         "mnnvl_lamport_reduce_scatter": "custom_reduce_scatter",
         "mnnvl_multimem_reduce_scatter": "custom_reduce_scatter"}, {}),
    # Others put signals of their own into blocks of meta_size().
    "sgl_kernel.allreduce": Place({name: name for name in _OPS}, {"meta_size": "meta_size"}),
    "flashinfer.comm": Place(
        {f"vllm_{name}": name for name in _OPS},
        {"vllm_meta_size": "meta_size", "create_shared_buffer": "create_shared_buffer",
         "free_shared_buffer": "free_shared_buffers"}),
}


def replace(module: ModuleType) -> None:
    """Replaces the operations of one of PLACES' modules; once more changes nothing."""
    import torch

    if torch.version.hip is not None:
        return  # other operations, of the same names
    from weft import custom_all_reduce

    place = PLACES[module.__name__]
    for name, value in vars(module).copy().items():
        if name not in place.replaced and _takes_fa(name, value):
            setattr(module, name, _refusal(f"{module.__name__}.{name}"))
    for name, ours in place.replaced.items():
        setattr(module, name, getattr(custom_all_reduce, ours))
    for name, ours in place.added.items():
        if not hasattr(module, name):
            setattr(module, name, globals().get(ours) or getattr(custom_all_reduce, ours))


def _takes_fa(name: str, value: Any) -> bool:
    """Whether it is an operation of their groups, which would take weft's for one of them. Those
    of quick all-reduce have groups of their own."""
    if not inspect.isfunction(value) or name.startswith("qr_"):
        return False
    return next(iter(inspect.signature(value).parameters), None) == "fa"


def _refusal(name: str) -> Callable[..., None]:
    def refuse(*arguments: Any, **named: Any) -> None:
        from weft import UnsupportedError

        raise UnsupportedError(f"{name} is not among the operations that weft replaces")

    return refuse


# ------------------------------------------------------------ when


def replace_on_import() -> None:
    """Replaces what is imported from now on, and what has been imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in PLACES:
        if name in sys.modules:
            replace(sys.modules[name])


class _Finder:
    """Finds PLACES' modules where others do, and adds a step to their import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in PLACES:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None and spec.loader is not None:
                self._add_step(spec.loader)
                return spec
        return None

    def _add_step(self, loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            replace(module)

        loader.exec_module = execute_and_replace


def vllm_plugin() -> None:
    """The entry point of vllm.general_plugins."""
    replace(importlib.import_module("vllm._custom_ops"))


# ------------------------------------------------------------ FlashInfer's two functions of groups


def create_shared_buffer(size_in_bytes: int, group: Any = None) -> list[int]:
    """Blocks of all ranks of a process group as they are mapped here. Collective."""
    import torch.distributed as dist
    from weft import custom_all_reduce as ops

    address, handle = ops.allocate_shared_buffer_and_handle(size_in_bytes)
    handles: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(handles, handle, group=group)
    rank = dist.get_rank(group)
    return [address if r == rank else ops.open_mem_handle(handles[r]) for r in range(len(handles))]


def free_shared_buffers(pointers: list[int], group: Any = None) -> None:
    """Ends create_shared_buffer(). Collective."""
    import torch.distributed as dist
    from weft import custom_all_reduce as ops

    rank = dist.get_rank(group)
    for r, address in enumerate(pointers):
        if r != rank:
            ops.free_shared_buffer(address)
    dist.barrier(group)  # nobody maps it any more
    ops.free_shared_buffer(pointers[rank])
    dist.barrier(group)
