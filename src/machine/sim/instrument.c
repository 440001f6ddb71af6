/* SPDX-License-Identifier: MIT */
/* The hooks that the compiler calls in programs built with -fsanitize=thread: each names an access
 * that the program is about to make. Their interface is that of ThreadSanitizer's run-time library,
 * which the sim is linked without. */
#include "machine/sim/sim_launch.h"

/* The compiler calls what this file defines, and no header declares it. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* A fiber's own stack is nobody else's business. */
static int is_private(const void *address)
{
    return sim_world == NULL || sim_current() == NULL || sim_current()->is_host ||
           weft__fiber_owns(sim_current()->stack, address);
}

/* Written before the launch and constant: no read of them can race. More than half of all reads
 * are. */
static int is_argument(const void *address)
{
    const struct weft__launch *request = sim_current()->warp.shared->launch->request;
    return (uintptr_t)address - (uintptr_t)request->args < request->args_bytes;
}

static void read_hook(const void *address, size_t num_bytes, const void *code)
{
    if (!is_private(address) && !is_argument(address))
        sim_check_access(address, num_bytes, SIM_READ, code);
}

static void write_hook(void *address, size_t num_bytes, const void *code)
{
    if (is_private(address))
        return;
    sim_check_access(address, num_bytes, SIM_WRITE, code);
    sim_store_begin(address, num_bytes, SIM_PLAIN_STORE);
}

#define HOOKS(bytes)                                                                               \
    void __tsan_read##bytes(void *address)                                                         \
    {                                                                                              \
        read_hook(address, bytes, __builtin_return_address(0));                                    \
    }                                                                                              \
    void __tsan_write##bytes(void *address)                                                        \
    {                                                                                              \
        write_hook(address, bytes, __builtin_return_address(0));                                   \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *address)                                               \
    {                                                                                              \
        read_hook(address, bytes, __builtin_return_address(0));                                    \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *address)                                              \
    {                                                                                              \
        write_hook(address, bytes, __builtin_return_address(0));                                   \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void *address, unsigned long num_bytes)
{
    read_hook(address, num_bytes, __builtin_return_address(0));
}

void __tsan_write_range(void *address, unsigned long num_bytes)
{
    write_hook(address, num_bytes, __builtin_return_address(0));
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *code)
{
    (void)code;
}

void __tsan_func_exit(void)
{
}
