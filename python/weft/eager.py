# SPDX-License-Identifier: MIT
"""Functions that torch.compile leaves alone: they call the library with addresses, and hold objects
that must be made once."""
from __future__ import annotations

from functools import wraps
from inspect import getattr_static, isfunction
from typing import Any, Callable

try:  # the parts of torch.compiler.disable(); some versions have them elsewhere
    from torch._C._dynamo.eval_frame import (_FrameAction, _FrameExecStrategy,
                                             set_code_exec_strategy, set_eval_frame)
except ImportError:
    set_eval_frame = None


def eager(function: Callable) -> Callable:
    """Does the work of torch.compiler.disable() in 0.3 us of a call. It does not import the
    compiler, which would take seconds."""
    if set_eval_frame is None:
        import torch

        return torch.compiler.disable(function)

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        before = set_eval_frame(None)
        try:
            return function(*arguments, **named)
        finally:
            if before is not None:
                set_eval_frame(before)

    set_code_exec_strategy(  # so that call() itself is not compiled
        call.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT))
    call._torchdynamo_disable = True
    call._torchdynamo_disable_msg = None
    call._torchdynamo_disable_recursive = True
    call._torchdynamo_orig_callable = function
    return call


def eager_methods(cls: type) -> type:
    """All public methods of a class, also those that it inherits."""
    for name in dir(cls):
        method = getattr_static(cls, name)
        if not name.startswith("_") and isfunction(method):
            setattr(cls, name, eager(method))
    return cls
