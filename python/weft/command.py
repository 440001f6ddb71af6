# SPDX-License-Identifier: MIT
"""The command weft of an installed package: the tool that lies beside this file."""
import os
import sys


def main() -> None:
    """Becomes the tool, with this process's arguments."""
    tool = os.path.join(os.path.dirname(__file__), "weft-tool")
    os.execv(tool, ["weft", *sys.argv[1:]])
