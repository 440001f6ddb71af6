# SPDX-License-Identifier: MIT
"""The example of docs/python.md is the file, word for word, and runs."""
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.join(os.path.dirname(os.environ["WEFT_HEADER"]), os.pardir)


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def test_first_layer():
    in_document = re.search(r"```python\n(.*?)```", read("docs", "python.md"), flags=re.S)[1]
    in_example = re.search(r"# \[docs\]\n(.*?)# \[end\]", read("examples", "first_layer.py"),
                           flags=re.S)[1]
    assert in_document == in_example
    done = subprocess.run(
        [os.environ["WEFT_TOOL"], "run", "-n", "4", "--", sys.executable,
         os.path.join(ROOT, "examples", "first_layer.py")],
        capture_output=True, text=True, check=True)
    assert len(re.findall(r"^\[[0-3]\] rank [0-3]: token 3 was 4 and is [48]$", done.stdout,
                          flags=re.M)) == 4, done


def test_moe_layer():
    """That of the document is the file's, which test_torch runs."""
    in_document = re.search(r"```python\n(class MoeLayer.*?)```", read("docs", "python.md"),
                            flags=re.S)[1]
    assert in_document in read("examples", "moe_layer.py")


def go_on(num_ranks, victim, step, **environment):
    return subprocess.run(
        [os.environ["WEFT_TOOL"], "run", "-n", str(num_ranks), "--grace", "600", "--",
         sys.executable, os.path.join(ROOT, "examples", "go_on.py"), "--kill", str(victim),
         str(step)], env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("victim, step", [(0, 0), (1, 12), (3, 200)])
def test_go_on(victim, step):
    done = go_on(4, victim, step)
    assert done.returncode == 137, done
    left = {0, 1, 2, 3} - {victim}
    for rank in left:
        died = rf"\[{rank}\] rank {rank}: .*rank {victim} died .*3 ranks have done step \d+ "
        again = rf"\[{rank}\] rank {rank}: .* new rank is there; 4 ranks have done step \d+ "
        assert len(re.findall(died, done.stdout)) == 1, done
        assert len(re.findall(again, done.stdout)) == 1, done
        assert f"[{rank}] rank {rank}: all steps before " in done.stdout, done
    assert f"[{min(left)}] new rank 3: all steps before " in done.stdout, done


def test_go_on_without_a_new_rank(tmp_path):
    """A new rank that ends before it is there is an error, with its exit status."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif sys.argv[1:] == ['--join']: os._exit(3)\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    done = go_on(2, 1, 12, PYTHONPATH=path)
    assert "the new rank ended with status 3" in done.stderr, done
