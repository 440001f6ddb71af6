/* SPDX-License-Identifier: MIT */
#include "machine/fiber.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/host/error.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define WITH_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define WITH_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS_FEATURE(thread_sanitizer)
#define WITH_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define WITH_TSAN 0
#endif

/* Boost.Context's assembler, which has C linkage but only a C++ header. A switch takes 17 ns
 * where ucontext, which sets the signal mask by a system call, takes 245 (bench/fiber_switch). */
struct transfer {
    void *context;
    void *data;
};
extern struct transfer jump_fcontext(void *to, void *data);
extern void *make_fcontext(void *stack_top, size_t stack_bytes, void (*entry)(struct transfer));

struct weft__fiber {
    void *context; /* of the fiber while it does not run */
    void *resumer; /* of its resumer while it runs */
    /* Lowest address; the lowest page is a guard: an overflow faults instead of corrupting the
     * neighbour. */
    char *stack;
    size_t guard_bytes;
    size_t stack_bytes; /* without the guard */
    void (*function)(void *argument);
    void *argument;
#if WITH_ASAN
    const void *resumer_stack;
    size_t resumer_stack_bytes;
#endif
#if WITH_TSAN
    void *tsan_fiber;
    void *tsan_resumer;
#endif
};

static void entered_fiber(struct weft__fiber *fiber, struct transfer from)
{
    fiber->resumer = from.context;
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(NULL, &fiber->resumer_stack, &fiber->resumer_stack_bytes);
#endif
}

static void leave_fiber(struct weft__fiber *fiber)
{
#if WITH_ASAN
    void *fake_stack;
    __sanitizer_start_switch_fiber(&fake_stack, fiber->resumer_stack, fiber->resumer_stack_bytes);
#endif
#if WITH_TSAN
    __tsan_switch_to_fiber(fiber->tsan_resumer, 0);
#endif
    struct transfer from = jump_fcontext(fiber->resumer, NULL);
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, &fiber->resumer_stack, &fiber->resumer_stack_bytes);
#endif
    fiber->resumer = from.context;
}

/* Never returns: after a function it waits, suspended, for the next one. */
static void fiber_main(struct transfer from)
{
    struct weft__fiber *fiber = from.data;
    entered_fiber(fiber, from);
    for (;;) {
        fiber->function(fiber->argument);
        leave_fiber(fiber);
    }
}

weft_result weft__fiber_create(struct weft__fiber **out, size_t stack_bytes)
{
    struct weft__fiber *fiber = calloc(1, sizeof *fiber);
    WEFT__CHECK_MEMORY(fiber, "no memory for a fiber");
    const size_t guard_bytes = (size_t)sysconf(_SC_PAGESIZE);
    fiber->stack = mmap(NULL, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED) {
        free(fiber);
        return weft__no_memory("no memory for a fiber's stack of %zu bytes", stack_bytes);
    }
    fiber->guard_bytes = guard_bytes;
    fiber->stack_bytes = stack_bytes;
    if (mprotect(fiber->stack, guard_bytes, PROT_NONE) != 0) {
        munmap(fiber->stack, stack_bytes + guard_bytes);
        free(fiber);
        return weft__system_error("no guard page for a fiber's stack");
    }
    fiber->context =
        make_fcontext(fiber->stack + guard_bytes + stack_bytes, stack_bytes, fiber_main);
#if WITH_TSAN
    fiber->tsan_fiber = __tsan_create_fiber(0);
#endif
    *out = fiber;
    return WEFT_OK;
}

void weft__fiber_destroy(struct weft__fiber *fiber)
{
    if (fiber == NULL)
        return;
#if WITH_TSAN
    __tsan_destroy_fiber(fiber->tsan_fiber);
#endif
#if WITH_ASAN
    /* Nobody left the last frames: their poisoned borders would be a trap for the memory's next
     * owner. */
    __asan_unpoison_memory_region(fiber->stack + fiber->guard_bytes, fiber->stack_bytes);
#endif
    munmap(fiber->stack, fiber->guard_bytes + fiber->stack_bytes);
    free(fiber);
}

int weft__fiber_owns(const struct weft__fiber *fiber, const void *address)
{
    return (uintptr_t)address - (uintptr_t)fiber->stack < fiber->guard_bytes + fiber->stack_bytes;
}

void weft__fiber_start(struct weft__fiber *fiber, void (*function)(void *argument), void *argument)
{
    fiber->function = function;
    fiber->argument = argument;
}

void weft__fiber_resume(struct weft__fiber *fiber)
{
#if WITH_ASAN
    void *fake_stack;
    __sanitizer_start_switch_fiber(&fake_stack, fiber->stack + fiber->guard_bytes,
                                   fiber->stack_bytes);
#endif
#if WITH_TSAN
    fiber->tsan_resumer = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->tsan_fiber, 0);
#endif
    struct transfer from = jump_fcontext(fiber->context, fiber);
#if WITH_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
    fiber->context = from.context;
}

void weft__fiber_yield(struct weft__fiber *fiber)
{
    leave_fiber(fiber);
}
