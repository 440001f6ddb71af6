# SPDX-License-Identifier: MIT
"""Runs PyTorch's own tests of torch.distributed (torch/testing/_internal/distributed/
distributed_test.py, which its wheel has) with a backend, on CPUs, and tells how each went.

    tests/python/torch_suite.py weft|gloo [--out FILE] [unittest's options and names of tests]

They are for backends that they know by name. So that backend weft has to do all that gloo does, the
names are changed where a test says that it is for gloo: weft is where gloo is in conditions and
lists; no other line of a test is. Ranks are forked, which takes less time than to spawn them.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

MODULE = "torch.testing._internal.distributed.distributed_test"


def change_names(source: str) -> str:
    """Where a test names gloo as one of those that can do it, weft can, too."""
    source = re.sub(r'BACKEND == "gloo"', 'BACKEND in ("gloo", "weft")', source)
    source = re.sub(r'BACKEND != "gloo"', 'BACKEND not in ("gloo", "weft")', source)
    source = source.replace('@require_backend_is_available({"gloo"})',
                            '@require_backend_is_available({"gloo", "weft"})')
    return source.replace("    def check(backend):\n",
                          '    def check(backend):\n        if backend == "weft":\n'
                          "            return True\n", 1)


def load(backend: str):
    import importlib.util

    from torch.testing._internal.common_distributed import DistTestCases

    for backends in DistTestCases.backend_feature.values():
        if "gloo" in backends:
            backends.add(backend)
    spec = importlib.util.find_spec(MODULE)
    source = Path(spec.origin).read_text()
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    code = compile(change_names(source), spec.origin, "exec", dont_inherit=True)
    exec(code, module.__dict__)
    return module


class Result(unittest.TextTestResult):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.told: dict[str, list] = {}

    def startTest(self, test):
        super().startTest(test)
        self.since = time.monotonic()

    def _tell(self, test, how: str, why: str = "") -> None:
        name = getattr(test, "_testMethodName", str(test))
        self.told[name] = [how, why.strip(), round(time.monotonic() - self.since, 1)]

    def addSuccess(self, test):
        super().addSuccess(test)
        self._tell(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._tell(test, "skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._tell(test, "failed", self._exc_info_to_string(error, test)[-3000:])

    addError = addFailure


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("backend", choices=["weft", "gloo"])
    options.add_argument("--out")
    options.add_argument("--ranks", default="2")
    mine, others = options.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"BACKEND": mine.backend, "WORLD_SIZE": mine.ranks, "TEMP_DIR": folder,
                       "INIT_METHOD": f"file://{folder}/shared_init_file",
                       "MASTER_PORT": os.environ.get("MASTER_PORT", "29500")}
        import torch

        torch.set_num_threads(1)
        module = load(mine.backend)

        class TestBackend(module.TestDistBackend, module.DistributedTest._DistTestBase):
            def setUp(self):
                super().setUp()
                self._start_processes(torch.multiprocessing.get_context("fork").Process)

        globals()["TestBackend"] = TestBackend
        module.instantiate_parametrized_tests(TestBackend)
        program = unittest.main(
            argv=[sys.argv[0], *others], exit=False,
            testRunner=unittest.TextTestRunner(resultclass=Result, verbosity=2))
    told = program.result.told
    if mine.out:
        Path(mine.out).write_text(json.dumps(told, indent=1))
    print({how: sum(each[0] == how for each in told.values())
           for how in ("passed", "skipped", "failed")})
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
