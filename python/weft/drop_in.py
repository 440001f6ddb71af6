# SPDX-License-Identifier: MIT
"""Prints the folder of the drop-in for DeepEP: PYTHONPATH=$(python3 -m weft.drop_in) puts it before
a deep_ep that is installed, also in processes that are started later."""
import os


def folder() -> str:
    return os.path.join(os.path.dirname(__file__), "deep_ep_drop_in")


if __name__ == "__main__":
    print(folder())
