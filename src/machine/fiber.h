/* SPDX-License-Identifier: MIT */
/* Stackful coroutines: the only file pair that knows the library that switches stacks. */
#pragma once

#include "weft.h"

struct weft__fiber;

/* Enough for warp programs, also instrumented ones. */
enum { WEFT__FIBER_STACK_BYTES = 256 * 1024 };

/* A fiber owns a stack, of which only what is used takes memory, and can run one function after
 * another. */
weft_result weft__fiber_create(struct weft__fiber **fiber, size_t stack_bytes);
/* Whether an address is on the fiber's stack. */
int weft__fiber_owns(const struct weft__fiber *fiber, const void *address);
void weft__fiber_destroy(struct weft__fiber *fiber);

/* Sets what the next resume starts. The fiber must be new, or its last function have returned. */
void weft__fiber_start(struct weft__fiber *fiber, void (*function)(void *argument), void *argument);
/* Runs the fiber until it yields or its function returns. */
void weft__fiber_resume(struct weft__fiber *fiber);
/* Called inside the fiber: returns to the caller of resume. */
void weft__fiber_yield(struct weft__fiber *fiber);
