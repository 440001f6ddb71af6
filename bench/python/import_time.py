# SPDX-License-Identifier: MIT
"""What `import weft` costs beyond an empty script: the difference of medians of 20 processes each.

    PYTHONPATH=build/python python3 bench/python/import_time.py
"""
import os
import statistics
import subprocess
import sys
import time

PROCESSES = 20


def medians_ms(code):
    """Of the time that passes, and of processor time, which other work disturbs less."""
    wall, processor = [], []
    for _ in range(PROCESSES):
        start, before = time.perf_counter(), os.times()
        subprocess.run([sys.executable, "-c", code], check=True)
        after = os.times()
        wall.append(1e3 * (time.perf_counter() - start))
        processor.append(1e3 * (after.children_user + after.children_system
                                - before.children_user - before.children_system))
    return statistics.median(wall), statistics.median(processor)


empty, package = medians_ms("pass"), medians_ms("import weft")
wall_ms, processor_ms = (after - before for before, after in zip(empty, package))
print(f"import weft: {wall_ms:.0f} ms, {processor_ms:.0f} ms of processor time")
