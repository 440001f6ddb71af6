# SPDX-License-Identifier: MIT
"""Prints the folder of a drop-in: PYTHONPATH=$(python3 -m weft.drop_in) puts the one for DeepEP
before a deep_ep that is installed, also in processes that are started later; custom_all_reduce as
an argument prints the one for the operations of vLLM's, SGLang's and FlashInfer's custom
all-reduce."""
import os
import sys

NAMES = ("deep_ep", "custom_all_reduce")


def folder(name: str = "deep_ep") -> str:
    """The path of a drop-in's folder; name is one of NAMES."""
    if name not in NAMES:
        raise ValueError(f"there is no drop-in {name!r}, but {' and '.join(NAMES)}")
    return os.path.join(os.path.dirname(__file__), f"{name}_drop_in")


if __name__ == "__main__":
    try:
        print(folder(*sys.argv[1:2]))
    except ValueError as error:
        sys.exit(f"weft.drop_in: {error}")
