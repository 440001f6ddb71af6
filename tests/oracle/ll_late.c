/* SPDX-License-Identifier: MIT */
#include "oracle/ll_late.h"

#include <string.h>
#include <time.h>

#include "harness/machine.h"
#include "harness/memory.h"
#include "workload/rng.h"

enum { JUNK = 0xff }; /* each byte of rows that are not finished: NaN in every type */

int32_t ll_rows_per_word(const struct ll_case *problem)
{
    return problem->late_rows > 0 ? problem->late_rows : ll_capacity(problem);
}

int32_t ll_words_per_expert(const struct ll_case *problem)
{
    return (ll_capacity(problem) - 1) / ll_rows_per_word(problem) + 1;
}

static int64_t num_words(const struct ll_seat *seat)
{
    return (int64_t)ll_num_local(seat->problem, seat->context->rank) *
           ll_words_per_expert(seat->problem);
}

/* Where threads share memory, a word is raised as a thread does it; else by a copy, which is whole
 * before the next one. */
int ll_raise_word(struct ll_seat *seat, int32_t step, int64_t word, uint32_t value)
{
    uint32_t *at = seat->steps[step % 2].signals + word;
    if (tests_on_cuda())
        CHECK_OK(weft_memory_copy(seat->comm, at, &value, sizeof value));
    else
        __atomic_store_n(at, value, __ATOMIC_RELEASE);
    return 0;
}

int ll_take_rows_away(struct ll_seat *seat, int32_t step)
{
    const struct ll_step *at = &seat->steps[step % 2];
    const size_t num_bytes = seat->num_rows * seat->answer_stride;
    char *junk = tests_alloc(num_bytes + 1);
    memset(junk, JUNK, num_bytes);
    CHECK_OK(weft_memory_copy(seat->comm, at->finished, at->answers, num_bytes));
    CHECK_OK(weft_memory_copy(seat->comm, at->answers, junk, num_bytes));
    tests_free(junk);
    for (int64_t word = 0; word < num_words(seat); word++)
        if (ll_raise_word(seat, step, word, 0))
            return 1;
    return 0;
}

/* The rows of an expert that are there. */
static int count_rows(struct ll_seat *seat, int32_t step, int64_t expert, int32_t *num_rows)
{
    CHECK_OK(weft_memory_copy(seat->comm, num_rows, seat->steps[step % 2].expert_counts + expert,
                              sizeof *num_rows));
    if (*num_rows > ll_capacity(seat->problem))
        *num_rows = ll_capacity(seat->problem);
    return 0;
}

static int finish_word(struct ll_seat *seat, int32_t step, int64_t word)
{
    const struct ll_step *at = &seat->steps[step % 2];
    const int32_t words_per_expert = ll_words_per_expert(seat->problem);
    const int64_t expert = word / words_per_expert;
    const int32_t first = (int32_t)(word % words_per_expert) * ll_rows_per_word(seat->problem);
    int32_t num_rows;
    if (count_rows(seat, step, expert, &num_rows))
        return 1;
    num_rows -= first;
    if (num_rows <= 0)
        return 0; /* nobody may wait for it */
    if (num_rows > ll_rows_per_word(seat->problem))
        num_rows = ll_rows_per_word(seat->problem);
    const size_t from = (size_t)(expert * ll_capacity(seat->problem) + first) * seat->answer_stride;
    if (ll_raise_word(seat, step, word, LL_SIGNAL_VALUE - 1))
        return 1;
    CHECK_OK(weft_memory_copy(seat->comm, at->answers + from, at->finished + from,
                              (size_t)num_rows * seat->answer_stride));
    return ll_raise_word(seat, step, word, LL_SIGNAL_VALUE + (uint32_t)(word % 2));
}

int ll_finish_rows(struct ll_seat *seat, int32_t step)
{
    struct rng rng = {rng_key(seat->problem->seed, (uint64_t)step)};
    const int64_t count = num_words(seat);
    int64_t *order = tests_alloc((size_t)count * sizeof *order + 1);
    int failed = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t other = (int64_t)rng_below(&rng, (uint64_t)i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    if (step % 2 == 0) /* combine mostly waits by then; else words may be there first */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (int64_t i = 0; i < count && !failed; i++)
        failed = finish_word(seat, step, order[i]);
    tests_free(order);
    return failed;
}
