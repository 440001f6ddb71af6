# SPDX-License-Identifier: MIT
"""Events. On machine cpu operations have finished when they return, so there is nothing to wait
for."""
from __future__ import annotations

from typing import Any, Callable

import torch


class EventHandle:
    """A point in the current stream, when it was made."""

    def __init__(self):
        self._event = None
        if torch.cuda.is_initialized():
            self._event = torch.cuda.Event()
            self._event.record()

    def current_stream_wait(self) -> None:
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)


class EventOverlap:
    """What an operation returns: its end, or no event if it was synchronous."""

    def __init__(self, event: EventHandle | None = None,
                 extra_tensors: tuple[Any, ...] | None = None):
        self.event = event
        self.extra_tensors = extra_tensors  # which the operation uses
        self._hooks: list[Callable[[], None]] = []

    def register_hook_after_wait(self, hook: Callable[[], None]) -> None:
        self._hooks.append(hook)

    def current_stream_wait(self, release_handle: bool = False) -> None:
        assert self.event is not None
        self.event.current_stream_wait()
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook()
        if release_handle:
            self.event, self.extra_tensors = None, None

    def __call__(self, release_handle: bool = False) -> EventOverlap:
        self._releases = release_handle
        return self

    _releases = False

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *unused: Any) -> None:
        if self.event is not None:
            self.current_stream_wait(self._releases)
