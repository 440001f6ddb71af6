# SPDX-License-Identifier: MIT
"""What peer_tests.py needs for tests of vLLM's custom all-reduce: FlashInfer's
(tests/comm/test_vllm_custom_allreduce.py) and SGLang's (sgl-kernel/tests/test_custom_allreduce.py).
On CPUs, their workers' memory is the host's, and a graph is the calls of all-reduce that it saw."""
from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import types

import torch
from weft import custom_all_reduce, drop_in, shared_memory

MAX_ELEMENTS = 32768  # of a test's array: longer ones take gloo minutes


class Graph:
    """Calls, to be made again."""

    recording: Graph | None = None

    def __init__(self):
        self.calls = []

    def replay(self):
        for call in self.calls:
            call()


@contextlib.contextmanager
def record(graph, **unused):
    Graph.recording = graph
    yield
    Graph.recording = None


def recorded(function):
    def call(*args):
        if Graph.recording is not None:
            Graph.recording.calls.append(lambda: function(*args))
        function(*args)

    return call


class IpcHandle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_ubyte * shared_memory.HANDLE_BYTES)]


class CudaRTLibrary:
    """SGLang's, on memory of the host; not zeroed."""

    _handles: dict[int, bytes] = {}

    def cudaMalloc(self, num_bytes):
        address, handle = shared_memory.memory().allocate(num_bytes)
        self._handles[address] = handle
        shared_memory.memory().write(address, b"\xaa" * num_bytes)
        return ctypes.c_void_p(address)

    def cudaIpcGetMemHandle(self, pointer):
        return IpcHandle.from_buffer_copy(self._handles[pointer.value])

    def cudaIpcOpenMemHandle(self, handle):
        return ctypes.c_void_p(shared_memory.memory().open(bytes(handle)))

    def cudaFree(self, pointer):
        shared_memory.memory().release(pointer.value)


def prepare() -> None:
    """Stand-ins for packages that are not installed, and for what only a GPU has."""
    folder = drop_in.folder("custom_all_reduce")
    sys.path[:0] = [folder, os.path.join(folder, "stand_ins")]
    torch.cuda.CUDAGraph, torch.cuda.graph = Graph, record
    torch.manual_seed(0)  # as generators of GPUs begin: with the same seed in all processes
    custom_all_reduce._is_capturing = lambda coll: Graph.recording is not None
    import flashinfer.comm

    flashinfer.comm.vllm_all_reduce = recorded(flashinfer.comm.vllm_all_reduce)
    randint = torch.randint
    torch.randint = lambda low, high, size, **options: randint(
        low, high, (min(size[0], MAX_ELEMENTS),), **options)
    names = "sglang.srt.distributed.device_communicators.cuda_wrapper".split(".")
    for depth in range(1, len(names) + 1):
        sys.modules.setdefault(".".join(names[:depth]), types.ModuleType(names[depth - 1]))
    sys.modules[".".join(names)].CudaRTLibrary = CudaRTLibrary


def run(test: types.ModuleType, rank: int, num_ranks: int, port: int) -> None:
    """The workers of a test, one after the other."""
    if hasattr(test, "TestCustomAllReduce"):
        test._run_correctness_worker(num_ranks, rank, port, test.TestCustomAllReduce.test_sizes)
    else:
        test._run_correctness_worker(num_ranks, rank, port)
        test._run_graph_buffer_ipc_meta_worker(num_ranks, rank, port + 1)
