# SPDX-License-Identifier: MIT
"""Runs a function on every rank, each a process of its own."""
from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import weft

LIMIT_S = 600  # for a hang, also on a machine that others want
_processes = multiprocessing.get_context("fork")  # this process itself has no communicators


def _serve(pipe) -> None:
    pipe.send(weft.unique_id())
    pipe.recv()


def _be_rank(pipe, unique_id, rank, num_ranks, function, dies, config) -> None:
    gc.freeze()  # what there was before: modules, which take the collector a tenth of a second
    if "torch" in sys.modules:
        # PyTorch makes its pool of threads anew after a fork, when it is first asked for. Two
        # threads that ask at once abort the process ("Invalid thread pool!").
        sys.modules["torch"].set_num_threads(1)
    try:
        comm = weft.Communicator(unique_id, rank, num_ranks, **config)
        result = function(comm)
        if dies is None:
            comm.destroy()
        pipe.send((True, result))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def run(function, num_ranks: int = 2, limit_s: int = LIMIT_S, dies: int | None = None,
        **config) -> list:
    """function(comm) on every rank; returns what it returned on each. Fails with the ranks'
    tracebacks, and names the ranks that hang or died, but for one that is to die: then ranks leave
    without a word."""
    config = {"machine": weft.Machine.CPU, "timeout_ms": 60000} | config
    server_end, server_pipe = _processes.Pipe()
    server = _processes.Process(target=_serve, args=(server_pipe,), daemon=True)
    server.start()
    unique_id = server_end.recv()
    pipes, processes = [], []
    for rank in range(num_ranks):
        mine, theirs = _processes.Pipe()
        process = _processes.Process(target=_be_rank, args=(
            theirs, unique_id, rank, num_ranks, function, dies, config), daemon=True)
        process.start()
        theirs.close()
        pipes.append(mine)
        processes.append(process)
    try:
        results = [_result_of(pipe, limit_s) for pipe in pipes]
    finally:
        for process in [*processes, server]:
            process.kill()
            process.join()
    failures = [f"rank {rank}: {what}" for rank, (is_good, what) in enumerate(results)
                if not is_good and rank != dies]
    assert not failures, "\n" + "\n".join(failures)
    return [what for _, what in results]


def on_ranks(num_ranks: int | None = None, runs=run, **options):
    """A test that runs on every rank: its first argument is the communicator. The number of ranks
    may be the test's parameter num_ranks."""
    def decorate(function):
        def test(**parameters):
            runs(lambda comm: function(comm, **parameters),
                 parameters.get("num_ranks") if num_ranks is None else num_ranks, **options)

        signature = inspect.signature(function)
        test.__name__, test.__doc__ = function.__name__, function.__doc__
        test.__signature__ = signature.replace(
            parameters=list(signature.parameters.values())[1:])
        return test

    return decorate


def _result_of(pipe, limit_s):
    if not pipe.poll(limit_s):
        return False, "hangs"
    try:
        return pipe.recv()
    except EOFError:
        return False, "died"


def launch(num_ranks: int, script: str, *options: str, **environment: str):
    """A Python script as the ranks of `weft run`; returns the completed process."""
    return subprocess.run(
        [os.environ["WEFT_TOOL"], "run", "-n", str(num_ranks), *options, "--", sys.executable,
         "-c", script], env=os.environ | environment, capture_output=True, text=True,
        timeout=LIMIT_S, check=False)


def train_example(name: str):
    """An example as two ranks of torchrun, whose loss must fall; returns the completed process."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
         str(Path(__file__).parents[2] / "examples" / name)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"})
    losses = [float(loss) for loss in re.findall(r"loss of rank 0 is ([\d.]+)", done.stdout)]
    assert done.returncode == 0 and len(losses) == 2 and losses[1] < losses[0] / 5, done.stderr
    return done


def run_peer_test(folder: str, name: str, *options: str, drop_in: str = "") -> None:
    """A test program of others, unmodified, which is no part of this project; with the packages of
    a folder."""
    path = [drop_in, os.environ["PYTHONPATH"]] if drop_in else [os.environ["PYTHONPATH"]]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("peer_tests.py")), folder, name, *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)}, capture_output=True, text=True,
        timeout=LIMIT_S, check=False)
    assert done.returncode == 0 and f"{name}: passed" in done.stdout, done.stderr
