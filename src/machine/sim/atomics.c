/* SPDX-License-Identifier: MIT */
/*
 * Atomics of instrumented host code, as the threads of a rank use them: the hooks that the compiler
 * calls for them with -fsanitize=thread. Programs have none, since their ordered operations are
 * primitives.
 *
 * The schedule chooses who goes on before each. A store becomes visible late, also a sequentially
 * consistent one, but before the same thread's next store that releases, addition, fence, or
 * sequentially consistent load. So what C11 lets a load overtake, it overtakes here. Each fence is
 * a site, which can be weakened: then it is none.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

/* The compiler calls what this file defines, and no header declares it. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static int is_of_host(void)
{
    return sim_world != NULL && sim_current() != NULL && sim_current()->is_host;
}

static void commit(void)
{
    if (is_of_host())
        sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
}

static void before_load(int order)
{
    if (!is_of_host())
        return;
    sim_yield();
    if (order == memory_order_seq_cst)
        commit();
}

static void before_store(void *address, size_t num_bytes, int order)
{
    if (!is_of_host())
        return;
    sim_yield();
    if (order != memory_order_relaxed)
        commit();
    sim_store_begin(address, num_bytes, SIM_PLAIN_STORE);
}

static void before_addition(void)
{
    if (!is_of_host())
        return;
    sim_yield();
    commit();
}

/* ---------------------------------------------------------------- fences */

enum { MAX_FENCES = 64, FILE_BYTES = 64 };

static struct {
    const void *code;
    char file[FILE_BYTES];
    int line;
} fences[MAX_FENCES];
static int num_fences;

static struct weft__sim_place place_of(const void *code)
{
    int i = 0;
    while (i < num_fences && fences[i].code != code)
        i++;
    if (i == MAX_FENCES)
        abort(); /* a site that cannot be weakened would look like one that is needed */
    if (i == num_fences) {
        const char *where = sim_line_of(code), *colon = strrchr(where, ':');
        const int length = colon != NULL ? (int)(colon - where) : (int)strlen(where);
        fences[i].code = code;
        fences[i].line = colon != NULL ? (int)strtol(colon + 1, NULL, 10) : 0;
        snprintf(fences[i].file, FILE_BYTES, "%.*s", length, where);
        num_fences++;
    }
    return (struct weft__sim_place){fences[i].file, fences[i].line};
}

void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    if (is_of_host() && !sim_site_pass(place_of(__builtin_return_address(0)), SIM_SITE_FENCE))
        commit();
}

/* ---------------------------------------------------------------- words */

/* GCC's interface. Failed comparisons are as strong as those that succeed: they commit. */
#define HOOKS(bits, type)                                                                          \
    type __tsan_atomic##bits##_load(const volatile type *word, int order)                          \
    {                                                                                              \
        before_load(order);                                                                        \
        return *word;                                                                              \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile type *word, type value, int order)                   \
    {                                                                                              \
        before_store((void *)(uintptr_t)word, sizeof *word, order);                                \
        *word = value;                                                                             \
    }                                                                                              \
    type __tsan_atomic##bits##_exchange(volatile type *word, type value, int order)                \
    {                                                                                              \
        (void)order;                                                                               \
        before_addition();                                                                         \
        const type before = *word;                                                                 \
        *word = value;                                                                             \
        return before;                                                                             \
    }                                                                                              \
    type __tsan_atomic##bits##_fetch_add(volatile type *word, type value, int order)               \
    {                                                                                              \
        (void)order;                                                                               \
        before_addition();                                                                         \
        const type before = *word;                                                                 \
        *word = (type)(before + value);                                                            \
        return before;                                                                             \
    }                                                                                              \
    _Bool __tsan_atomic##bits##_compare_exchange_strong(volatile type *word, type *expected,       \
                                                        type value, int order, int order_failed)   \
    {                                                                                              \
        (void)order;                                                                               \
        (void)order_failed;                                                                        \
        before_addition();                                                                         \
        const type before = *word;                                                                 \
        const _Bool is_equal = before == *expected;                                                \
        if (is_equal)                                                                              \
            *word = value;                                                                         \
        *expected = before;                                                                        \
        return is_equal;                                                                           \
    }                                                                                              \
    _Bool __tsan_atomic##bits##_compare_exchange_weak(volatile type *word, type *expected,         \
                                                      type value, int order, int order_failed)     \
    {                                                                                              \
        return __tsan_atomic##bits##_compare_exchange_strong(word, expected, value, order,         \
                                                             order_failed);                        \
    }
HOOKS(8, uint8_t)
HOOKS(32, uint32_t)
HOOKS(64, uint64_t)
