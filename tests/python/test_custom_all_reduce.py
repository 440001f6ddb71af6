# SPDX-License-Identifier: MIT
"""The operations of vLLM's custom all-reduce, and how they get into their callers' places; skipped
without PyTorch."""
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import time
import types

import pytest
import weft
import weft.shared_memory
from ranks import launch, on_ranks, run, run_peer_test
from torch_ranks import in_group, torch
from weft.drop_in import folder

os.environ["WEFT_MACHINE"] = "cpu"
sys.path.insert(0, folder("custom_all_reduce"))
import weft_custom_all_reduce  # noqa: E402
from weft import custom_all_reduce as ops  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def blocks(comm, num_bytes=4096):
    """A block of each rank's, as they are mapped here."""
    address, handle = ops.allocate_shared_buffer_and_handle(num_bytes)
    assert handle.dtype == torch.uint8 and handle.shape == (64,) and not handle.is_cuda
    handles = comm.host_all_gather(bytes(handle.tolist()))
    return [address if r == comm.rank else ops.open_mem_handle(torch.tensor(list(h)))
            for r, h in enumerate(handles)]


def group(comm, pointers=None):
    return ops.init_custom_ar(pointers or blocks(comm), torch.empty(8), comm.rank, True)


def of_rank(rank, shape, dtype):
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def total_of(num_ranks, shape, dtype):
    """In fp32, in rank order, rounded once."""
    total = torch.zeros(shape)
    for rank in range(num_ranks):
        total += of_rank(rank, shape, dtype).float()
    return total.to(dtype)


def same(got, expected):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert torch.equal(got, expected)


@pytest.mark.parametrize("num_ranks", [1, 3])
@on_ranks()
def test_sums(comm, num_ranks):
    fa = group(comm)
    for dtype in DTYPES:
        for shape in ((5,), (48, 10), (0,), (3 << 20,) if dtype == torch.float32 else (8,)):
            x = of_rank(comm.rank, shape, dtype)
            out = torch.empty_like(x)
            ops.all_reduce(fa, x, out, 0, 0)
            same(out, total_of(num_ranks, shape, dtype))
            ops.all_reduce(fa, x, x, 123456, 8)  # whatever the buffer is
            same(x, total_of(num_ranks, shape, dtype))
    x = of_rank(comm.rank, (7, 48, 10), torch.bfloat16)[2:].transpose(0, 2)
    out = torch.empty_like(x)
    assert not x.is_contiguous() and out.stride() == x.stride()
    ops.all_reduce(fa, x, out, 0, 0, 36)
    same(out, total_of(num_ranks, (7, 48, 10), torch.bfloat16)[2:].transpose(0, 2))
    with pytest.raises(weft.InvalidArgumentError, match="inp is neither contiguous"):
        ops.all_reduce(fa, torch.empty(4, 6)[:, :3], torch.empty(4, 3), 0, 0)
    with pytest.raises(weft.InvalidArgumentError, match="it must be"):
        ops.all_reduce(fa, torch.empty(4), torch.empty(5), 0, 0)
    ops.dispose(fa)


@on_ranks(3)
def test_gather_and_scatter(comm):
    fa = group(comm)
    x = [of_rank(r, (4, 6), torch.bfloat16) for r in range(3)]
    out = torch.empty(12, 6, dtype=torch.bfloat16)
    ops.custom_all_gather(fa, x[comm.rank], out, 0, 0)
    same(out, torch.cat(x))
    out = torch.empty(2, 5)
    ops.custom_reduce_scatter(fa, of_rank(comm.rank, (6, 5), torch.float32), out, 0, 0)
    same(out, total_of(3, (6, 5), torch.float32)[2 * comm.rank:][:2])
    with pytest.raises(weft.InvalidArgumentError, match="has 7 elements, .* ranks, 3"):
        ops.custom_reduce_scatter(fa, torch.empty(7), torch.empty(2), 0, 0)
    ops.dispose(fa)


@on_ranks(2)
def test_groups(comm):
    """Several groups meet in the same blocks, whatever lies there, and end at any time."""
    pointers = blocks(comm)
    memory = weft.shared_memory.memory()
    memory.write(pointers[comm.rank], bytes(range(256)))
    comm.host_barrier()
    if comm.rank == 0:
        time.sleep(0.1)  # the other one looks at what lies there
    first, second = group(comm, pointers), group(comm, pointers)
    ops.register_buffer(first, pointers)
    assert memory.read(pointers[0], 160) == bytes(160)
    out = torch.empty(6)
    if comm.rank == 1:
        ops.dispose(first)
    ops.all_reduce(second, torch.ones(6), out, 0, 0)
    same(out, torch.full((6,), 2.))
    if comm.rank == 0:
        ops.dispose(first)
    for fa in (first, 0):
        with pytest.raises(weft.InvalidArgumentError, match=f"fa is {fa}, which"):
            ops.all_reduce(fa, out, out, 0, 0)
    with pytest.raises(weft.InvalidArgumentError, match="rank is 2, allowed are 0..1"):
        ops.init_custom_ar(pointers, torch.empty(8), 2, True)
    apart = ops.init_custom_ar(pointers[:1] * 2, torch.empty(8), comm.rank, False)
    with pytest.raises(weft.UnsupportedError, match="share no memory"):
        ops.all_reduce(apart, out, out, 0, 0)
    ops.dispose(apart)
    ops.dispose(second)
    comm.host_barrier()
    for pointer in pointers:
        ops.free_shared_buffer(pointer)
    with pytest.raises(weft.InvalidArgumentError, match="is no block"):
        ops.free_shared_buffer(pointers[0])


def test_failures(monkeypatch):
    monkeypatch.setattr(ops, "TIMEOUT_MS", 500)

    def fail(comm):
        pointers = blocks(comm)
        if comm.rank == 1:
            with pytest.raises(weft.WaitTimeoutError, match="rank 0 has not called init_custom_ar"):
                group(comm, pointers)
        comm.host_barrier()
        fa = group(comm, pointers)
        x = torch.ones(4)
        if comm.rank == 0:
            with pytest.raises(weft.WaitTimeoutError, match="rank 1"):
                ops.all_reduce(fa, x, x, 0, 0)
        comm.host_barrier()
        with pytest.raises(weft.Error):
            ops.all_reduce(fa, x, x, 0, 0)
        ops.dispose(fa)

    run(fail, 2)


def test_what_a_capture_recorded(monkeypatch):
    """Machine cpu captures nothing: this is what is counted, and that all ranks end together."""
    monkeypatch.setattr(ops, "_is_capturing", lambda coll: True)

    def record(comm):
        fa = group(comm)
        x = torch.ones(16)
        assert ops.get_graph_buffer_ipc_meta(fa) == ([], [])
        ops.register_graph_buffers(fa, [[], []], [[], []])
        for num_calls in (3, 1):
            for _ in range(num_calls):
                ops.all_reduce(fa, x, torch.empty_like(x), 0, 0)
            ops.all_reduce(fa, x, torch.empty_like(x), 4096, 64)  # which needs no registration
            handles, offsets = ops.get_graph_buffer_ipc_meta(fa)
            assert (len(handles), len(offsets)) == (64 * num_calls, num_calls)
            assert all(type(value) is int for value in handles + offsets)
            ops.register_graph_buffers(fa, [handles, handles], [offsets, offsets])
            assert ops.get_graph_buffer_ipc_meta(fa) == ([], [])
        if comm.rank == 0:
            ops.all_reduce(fa, x, torch.empty_like(x), 0, 0)
        else:
            ops.all_reduce(fa, x, torch.empty_like(x), 4096, 64)
        ops.register_graph_buffers(fa, [[0] * 64, []], [[0], []])
        ops.dispose(fa)

    run(record, 2)


def test_flashinfer_names():
    """As FlashInfer's own test uses them, with a process group; R = 2."""
    names = ("create_shared_buffer", "free_shared_buffer", "vllm_meta_size", "vllm_init_custom_ar",
             "vllm_register_buffer", "vllm_all_reduce", "vllm_get_graph_buffer_ipc_meta",
             "vllm_register_graph_buffers", "vllm_dispose")
    module = types.ModuleType("flashinfer.comm")
    weft_custom_all_reduce.replace(module)
    assert all(callable(getattr(module, name)) for name in names)
    def reduce(process_group):
        rank = process_group.rank()
        pointers = module.create_shared_buffer(module.vllm_meta_size() + 64)
        fa = module.vllm_init_custom_ar(pointers, torch.empty(8), rank, True)
        out = torch.empty(6)
        module.vllm_all_reduce(fa, torch.ones(6), out, pointers[rank], 64, 4)
        same(out, torch.full((6,), 2.))
        module.vllm_dispose(fa)
        module.free_shared_buffer(pointers)

    in_group(reduce, 2)


# ------------------------------------------------------------ places

OF_VLLM = """
def init_custom_ar(ipc_tensors, rank_data, rank, fully_connected): ...
def all_reduce(fa, inp, out, reg_buffer, reg_buffer_sz_bytes): ...
def mnnvl_lamport_all_gather(fa, inp, out, local_buffer): ...
def of_next_year(fa, inp): ...
def qr_all_reduce(fa, inp): return "quick"
def rms_norm(out, inp): return "norm"
"""


@pytest.fixture
def packages(tmp_path):
    """Packages as small as can be, with the modules that are looked for."""
    for name, text in (("vllm/__init__", ""), ("vllm/_custom_ops", OF_VLLM),
                       ("sgl_kernel/__init__", "from sgl_kernel.allreduce import *\n"),
                       ("sgl_kernel/allreduce", "def meta_size(): return 3456\n"
                                                "def dispose(fa): ...\n"),
                       ("sitecustomize", "import sys\nsys.hidden_ran = True\n")):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def with_path(function, *folders):
    """In a process of its own, where sys.path begins with folders."""
    def be_process(comm):
        sys.path[:0] = map(str, folders)
        function()

    run(be_process, 1)


def check_vllm(module):
    assert module.all_reduce is ops.all_reduce and module.init_custom_ar is ops.init_custom_ar
    assert module.mnnvl_lamport_all_gather is ops.custom_all_gather
    assert module.open_mem_handle is ops.open_mem_handle
    assert module.qr_all_reduce(0, 0) == "quick" and module.rms_norm(0, 0) == "norm"
    with pytest.raises(weft.UnsupportedError, match="^vllm._custom_ops.of_next_year is not"):
        module.of_next_year(1, inp=2)


def test_sitecustomize(packages):
    """It costs processes nothing that import none of the modules, and hides no other."""
    script = ("import sys\n"
              "assert sys.hidden_ran and type(sys.meta_path[0]).__name__ == '_Finder'\n"
              "assert not {'weft', 'torch'} & set(sys.modules)\n")
    paths = [folder("custom_all_reduce"), str(packages), os.environ["PYTHONPATH"]]
    subprocess.run([sys.executable, "-c", script], check=True,
                   env=os.environ | {"PYTHONPATH": ":".join(paths)})


def test_import_hook(packages):
    def look():
        weft_custom_all_reduce.replace_on_import()
        import sgl_kernel
        import vllm._custom_ops

        check_vllm(vllm._custom_ops)
        sgl = sys.modules["sgl_kernel.allreduce"]
        assert sgl.dispose is sgl_kernel.dispose is ops.dispose
        assert sgl.meta_size() == 3456 and sgl.all_reduce is ops.all_reduce
        assert importlib.util.find_spec("flashinfer") is None

    with_path(look, packages)


def test_plugin(packages):
    """Its entry point may run more than once, and after the module has been imported."""
    def look():
        import vllm._custom_ops as module

        assert module.all_reduce is not ops.all_reduce
        weft_custom_all_reduce.vllm_plugin()
        check_vllm(module)
        before = dict(vars(module))
        weft_custom_all_reduce.vllm_plugin()
        weft_custom_all_reduce.replace_on_import()
        weft_custom_all_reduce.replace_on_import()
        assert vars(module) == before
        assert [type(finder).__name__ for finder in sys.meta_path].count("_Finder") == 1

    with_path(look, packages)


def test_entry_point():
    """What vLLM finds of the distribution is there."""
    path = os.path.join(os.path.dirname(os.environ["WEFT_GENERATE_ABI"]), "custom_all_reduce",
                        "pyproject.toml")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    name, value = re.search(r'entry-points."vllm.general_plugins"\]\n(\w+) = "(.*)"', text).groups()
    found = importlib.metadata.EntryPoint(name, value, "vllm.general_plugins").load()
    assert found is weft_custom_all_reduce.vllm_plugin


def test_end_of_the_interpreter():
    """Nothing is disposed of or freed, and no rank waits for others."""
    done = launch(2, """
import os, torch, weft
from weft import custom_all_reduce as ops
with weft.Communicator.from_env() as comm:
    block, handle = ops.allocate_shared_buffer_and_handle(4096)
    handles = comm.host_all_gather(bytes(handle.tolist()))
    blocks = [block if r == comm.rank else ops.open_mem_handle(torch.tensor(list(h)))
              for r, h in enumerate(handles)]
    kept = [ops.init_custom_ar(blocks, torch.empty(1), comm.rank, True) for _ in range(2)]
    x = torch.ones(4)
    ops.all_reduce(kept[1], x, x, 0, 0)
print(x.tolist())
""")
    assert done.returncode == 0, done
    assert done.stdout.count("[2.0, 2.0, 2.0, 2.0]") == 2 and not done.stderr, done


def test_stand_ins():
    def look():
        import flashinfer.comm
        import sgl_kernel.allreduce

        assert flashinfer.comm.vllm_all_reduce is sgl_kernel.allreduce.all_reduce is ops.all_reduce
        assert flashinfer.comm.free_shared_buffer is not ops.free_shared_buffer
        assert sgl_kernel.allreduce.meta_size() == flashinfer.comm.vllm_meta_size() == 2560

    with_path(look, os.path.join(folder("custom_all_reduce"), "stand_ins"))


@pytest.mark.parametrize("variable, name", [("WEFT_TEST_FLASHINFER", "vllm_custom_allreduce"),
                                            ("WEFT_TEST_SGLANG", "custom_allreduce")])
def test_of_the_callers(variable, name):
    """Their own tests, unmodified, which are no part of this project."""
    folder_of_tests = os.environ.get(variable)
    if not folder_of_tests:
        pytest.skip(f"{variable} does not name a folder with test_{name}.py")
    run_peer_test(folder_of_tests, name)
