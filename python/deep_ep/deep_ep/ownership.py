# SPDX-License-Identifier: MIT
"""Whether this folder is the one that its distribution put there."""
from __future__ import annotations

import importlib.metadata
import os

NAME = "weft-deep-ep"


def check(folder: str) -> None:
    """Two distributions that install into one folder leave a mixture of their files."""
    here = os.path.realpath(folder)
    owners = []
    for distribution in importlib.metadata.distributions(path=[os.path.dirname(here)]):
        files = distribution.files or ()
        if any(file.parts[:2] == ("deep_ep", "__init__.py") for file in files):
            owners.append(distribution.metadata["Name"] or "one without a name")
    others = sorted({owner for owner in owners if owner.lower().replace("_", "-") != NAME})
    if others:
        raise ImportError(
            f"{here} belongs to {' and '.join(others)} too, so that its files may be of both: "
            f"uninstall {', '.join(others)} and {NAME}, and install one of them again")
