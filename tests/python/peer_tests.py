# SPDX-License-Identifier: MIT
"""Runs test programs of others, unmodified, on CPUs, or with ranks that share a GPU. They are not
part of this project: the folder that has them is an argument.

usage: peer_tests.py FOLDER NAME [--share-gpu] [--num-processes N] [--num-nodes N] [--OPTION]...

DeepEP's, with weft's deep_ep: intranode, internode, low_latency (tests of v1.2.1, tests/legacy of
later ones); ep, barrier, agrs, pp, engram (tests/elastic), whose own options may follow, agrs and
pp without their profiling, for which memory of the host is too small.
Of vLLM's custom all-reduce (peer_all_reduce.py): vllm_custom_allreduce, which is
FlashInfer's (tests/comm), and custom_allreduce, which is SGLang's (sgl-kernel/tests).

On CPUs, what these programs ask of a GPU is replaced: tensors on 'cuda' are on the CPU, NCCL is
gloo, times are not measured. Ranks that share a GPU get gloo, too: NCCL refuses them.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import os
import runpy
import sys
import types

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

SIZES = {
    "intranode": {"num_tokens": 32, "hidden": 256, "num_topk": 4, "num_experts": 16},
    "low_latency": {"num_tokens": 16, "hidden": 512, "num_topk": 4, "num_experts": 16},
    "internode": {"num_tokens": 16, "hidden": 128, "num_topk": 4, "num_experts": 32,
                  "num_topk_groups": 2, "pressure_test_mode": 0, "test_ll_compatibility": False},
}
OPTIONS = {"allow_mnnvl": False, "allow_nvlink": True, "disable_nvlink": False,
           "pressure_test": False, "shrink_test": False, "use_logfmt": False}
NODES = {"internode": 2}
ELASTIC = {  # these have defaults of their own
    "ep": ["--skip-perf-test", "--num-tokens=24", "--hidden=256", "--num-experts=32"],
    "barrier": [], "agrs": ["--num-stress-iterations=1"],
    "engram": ["--num-entries=64", "--num-tokens=16", "--num-qps=1"],
    "pp": ["--num-tokens=8", "--hidden=256"],
}
WITHOUT_PROFILING = ("agrs", "pp")
ALL_REDUCE = ("vllm_custom_allreduce", "custom_allreduce")


class OnCpu(TorchFunctionMode):
    """Devices called cuda are the CPU."""

    def __torch_function__(self, function, types_, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to:
            args = tuple("cpu" if isinstance(a, str) and "cuda" in a else a for a in args)
        return function(*args, **kwargs)


class Clock:
    """An event that measures nothing."""

    def __init__(self, **unused):
        pass

    def record(self, *unused):
        pass

    def elapsed_time(self, other):
        return 1.0


def replace_gpu() -> None:
    OnCpu().__enter__()
    torch.set_default_device = torch.cuda.set_device = lambda *unused: None
    torch.cuda.synchronize = torch.cuda._sleep = lambda *unused: None
    torch.cuda.Event = Clock


def share_gpu() -> None:
    torch.cuda.set_device(0)
    torch.cuda.set_device = lambda *unused: None


def replace_nccl() -> None:
    init = dist.init_process_group

    def init_gloo(*args, **kwargs):
        kwargs.pop("device_id", None)
        return init(*args, **(kwargs | {"backend": "gloo"}))

    init_gloo.__signature__ = inspect.signature(init)
    dist.init_process_group = init_gloo

    def gather(out, tensor, group=None):
        own = tensor.contiguous().view(torch.uint8).cpu()
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, own, group=group)
        out.view(-1).view(torch.uint8).copy_(torch.cat([part.view(-1) for part in parts]))

    dist.all_gather_into_tensor = gather


def bench(fn, num_warmups=1, num_tests=3, post_fn=None, **unused):
    for _ in range(4):
        fn()
        if post_fn is not None:
            post_fn()
    return 1.0, 1.0, 1.0


def bench_kineto(fn, kernel_names, *unused, num_kernels_per_period=1, **unused_too):
    for _ in range(2 if num_kernels_per_period == 1 else 0):  # else with products that take minutes
        fn()
    one = [1.0] * num_kernels_per_period if num_kernels_per_period > 1 else 1.0
    return one if isinstance(kernel_names, str) else tuple(one for _ in kernel_names)


def defaults_of(path: str, options: list[str]) -> tuple[str, argparse.Namespace]:
    """Which function a program would spawn, with which arguments."""
    spawned = []
    spawn, torch.multiprocessing.spawn = torch.multiprocessing.spawn, \
        lambda function, args, nprocs: spawned.append((function.__name__, args[-1]))
    argv, sys.argv = sys.argv, [path, *options]
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        torch.multiprocessing.spawn, sys.argv = spawn, argv
    return spawned[0]


class Profiling(Exception):
    """What comes next is not for CPUs."""


def stop_before_profiling() -> None:
    from deep_ep.utils import envs

    dist_print = envs.dist_print

    def look(text: str = "", **named) -> None:
        dist_print(text, **named)
        if text.startswith("Profiling"):
            raise Profiling

    envs.dist_print = look


def be_rank(local_rank: int, chosen: argparse.Namespace, node: int, function: str,
            args: argparse.Namespace) -> None:
    os.environ["RANK"] = str(node)
    torch.set_num_threads(1)
    folder, name, num_processes = chosen.folder, chosen.name, chosen.num_processes
    sys.path.insert(0, folder)
    share_gpu() if chosen.share_gpu else replace_gpu()
    replace_nccl()
    if name in ALL_REDUCE:
        import peer_all_reduce

        peer_all_reduce.prepare()
        peer_all_reduce.run(importlib.import_module(f"test_{name}"), local_rank, num_processes,
                            int(os.environ["MASTER_PORT"]))
        return
    times: types.ModuleType = importlib.import_module(
        "utils" if os.path.exists(os.path.join(folder, "utils.py")) else "deep_ep.utils.testing")
    times.bench, times.bench_kineto = bench, bench_kineto
    if name in WITHOUT_PROFILING:
        stop_before_profiling()
    test = importlib.import_module(f"test_{name}")
    with contextlib.suppress(Profiling):
        getattr(test, function)(local_rank, num_processes, args)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("name", choices=[*SIZES, *ELASTIC, *ALL_REDUCE])
    parser.add_argument("--share-gpu", action="store_true")
    parser.add_argument("--num-processes", type=int, default=2)
    parser.add_argument("--num-nodes", type=int)
    parser.add_argument("--use-logfmt", action="store_true")
    chosen, options = parser.parse_known_args()
    num_nodes = chosen.num_nodes or NODES.get(chosen.name, 1)
    os.environ |= {"WORLD_SIZE": str(num_nodes), "WEFT_NODES": str(num_nodes),
                   "WEFT_MACHINE": "cuda" if chosen.share_gpu else "cpu"}
    os.environ.setdefault("MASTER_PORT", "8361")
    if chosen.name in ELASTIC:
        function, args = defaults_of(os.path.join(chosen.folder, f"test_{chosen.name}.py"),
                                     [*ELASTIC[chosen.name], *options])
    else:
        function, args = "test_loop", argparse.Namespace(
            num_processes=chosen.num_processes, **(OPTIONS | SIZES.get(chosen.name, {})
                                                   | {"use_logfmt": chosen.use_logfmt}))
    nodes = [torch.multiprocessing.spawn(
        be_rank, nprocs=chosen.num_processes, join=False,
        args=(chosen, node, function, args))
        for node in range(num_nodes)]
    for context in nodes:
        while not context.join():
            pass
    print(f"{chosen.name}: passed")


if __name__ == "__main__":
    main()
