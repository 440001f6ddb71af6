# SPDX-License-Identifier: MIT
"""Whether the files here are weft's alone."""
import glob
import os


def check(folder: str) -> None:
    """The project weft of PyPI installs into a folder of the same name: then files of both mix."""
    folder = os.path.realpath(folder)
    if glob.glob(os.path.join(os.path.dirname(folder), "weft-[0-9]*.dist-info")):
        raise ImportError(f"another distribution, weft, has files in {folder} too: pip uninstall "
                          "weft weft-ep, then pip install weft-ep")
