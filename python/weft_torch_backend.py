# SPDX-License-Identifier: MIT
"""Tells PyTorch of backend "weft", when PyTorch is imported: the entry point `weft` of
`torch.backends`. It loads weft only when such a group is made."""


def register() -> None:
    import torch.distributed as dist

    if dist.is_available() and "weft" not in dist.Backend.backend_list:
        dist.Backend.register_backend("weft", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(opts, options):
    import torch

    if torch.__version__ < "2.14":
        raise RuntimeError("backend weft needs PyTorch 2.14 or later, where backends may be in "
                           f"Python; this is {torch.__version__}")
    from weft.torch_group import create

    return create(opts, options)
