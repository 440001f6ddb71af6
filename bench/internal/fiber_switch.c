/* SPDX-License-Identifier: MIT */
/* What switching fibers costs: weft's, and the C library's ucontext beside them. Prints one JSON
 * line per kind, nanoseconds per switch. */
#include <stdio.h>
#include <ucontext.h>

#include "machine/fiber.h"
#include "workload/clock.h"

enum { NUM_ROUND_TRIPS = 1000000, STACK_BYTES = 64 * 1024 };

static void yield_often(void *argument)
{
    struct weft__fiber *fiber = argument;
    for (int i = 0; i < NUM_ROUND_TRIPS; i++)
        weft__fiber_yield(fiber);
}

static double measure_weft(void)
{
    struct weft__fiber *fiber;
    if (weft__fiber_create(&fiber, WEFT__FIBER_STACK_BYTES) != WEFT_OK)
        return -1;
    weft__fiber_start(fiber, yield_often, fiber);
    const int64_t start_ns = clock_ns();
    for (int i = 0; i <= NUM_ROUND_TRIPS; i++)
        weft__fiber_resume(fiber);
    const double elapsed_ns = (double)(clock_ns() - start_ns);
    weft__fiber_destroy(fiber);
    return elapsed_ns / (2.0 * NUM_ROUND_TRIPS);
}

static ucontext_t main_context, other_context;

static void swap_often(void)
{
    for (int i = 0; i < NUM_ROUND_TRIPS; i++)
        swapcontext(&other_context, &main_context);
}

static double measure_ucontext(void)
{
    static char stack[STACK_BYTES];
    if (getcontext(&other_context) != 0)
        return -1;
    other_context.uc_stack.ss_sp = stack;
    other_context.uc_stack.ss_size = STACK_BYTES;
    other_context.uc_link = &main_context;
    makecontext(&other_context, swap_often, 0);
    const int64_t start_ns = clock_ns();
    for (int i = 0; i <= NUM_ROUND_TRIPS; i++)
        swapcontext(&main_context, &other_context);
    const double elapsed_ns = (double)(clock_ns() - start_ns);
    return elapsed_ns / (2.0 * NUM_ROUND_TRIPS);
}

int main(void)
{
    const double weft_ns = measure_weft();
    const double ucontext_ns = measure_ucontext();
    printf("{\"name\": \"fiber_switch_ns\", \"value\": %.1f}\n", weft_ns);
    printf("{\"name\": \"ucontext_switch_ns\", \"value\": %.1f}\n", ucontext_ns);
    return weft_ns < 0 || ucontext_ns < 0;
}
