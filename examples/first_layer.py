# SPDX-License-Identifier: MIT
"""The smallest MoE layer in Python, whose experts return their input; as first_layer.c. Run it
with: PYTHONPATH=build/python build/weft run -n 4 -- python3 examples/first_layer.py
The part between the marks stands in docs/python.md, too."""
# [docs]
import numpy as np
import weft


def layer(handle: weft.Handle, arena: weft.Arena, topk_idx: np.ndarray, x: np.ndarray):
    handle.layout(topk_idx)  # which token goes to which rank
    handle.notify()  # and to which row there
    received = handle.dispatch(x, arena=arena)  # each row is at the ranks that need it
    # Here your experts work on received.x.
    return handle.combine(received.x)  # the sum of each token's rows is back


with weft.Communicator.from_env() as comm:
    ep = weft.ExpertParallel(comm, num_experts=16)
    arena = weft.Arena(comm, 1 << 20)  # memory that other ranks write to
    first = 5 * comm.rank + 3 * np.arange(4)
    topk_idx = np.stack([first, first + 8], axis=1) % 16  # [tokens, 2]
    x = np.arange(1, 5, dtype=np.float32)[:, None].repeat(8, axis=1)  # [tokens, hidden]
    out = layer(ep.handle(num_topk=2), arena, topk_idx, x)
    print(f"rank {comm.rank}: token 3 was {x[3, 0]:g} and is {out[3, 0]:g}")
# [end]
