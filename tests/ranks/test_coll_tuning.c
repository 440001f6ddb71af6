/* SPDX-License-Identifier: MIT */
/* WEFT_TUNING: rank 0's table chooses on all ranks, with blocks and warps that change no result,
 * and what is wrong with it all ranks are told. */
#include <stdlib.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_call.h"

enum { NUM_RANKS = 3 };

static char path[] = "/tmp/weft-tuning-XXXXXX";

static int open_file(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* Rows without the machine, which is that of the test. */
static void write_table(const char *const *rows)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; rows[i] != NULL; i++)
        assert_true(fprintf(file, "%s %s\n", tests_on_cuda() ? "cuda" : "cpu", rows[i]) > 0);
    assert_int_equal(fclose(file), 0);
}

/* Ranks are processes: only rank 0 is told of the file, others of one that is none. */
static int tell_rank_0(struct ranks_context *context, const char *file)
{
    return setenv("WEFT_TUNING", context->rank == 0 ? file : "/nonexistent/table", 1);
}

static int check_choice(weft_coll *coll, weft_collective collective, uint64_t bytes,
                        weft_algorithm expected)
{
    const weft_algorithm chosen = weft_coll_algorithm(coll, collective, bytes);
    CHECK(chosen == expected, "collective %d of %llu bytes: %s, not %s", collective,
          (unsigned long long)bytes, weft_coll_algorithm_name(chosen),
          weft_coll_algorithm_name(expected));
    return 0;
}

static const struct {
    weft_collective collective;
    uint64_t bytes;
    weft_algorithm algorithm;
} choices[] = {
    {WEFT_ALL_REDUCE, 0, WEFT_ALGORITHM_TWOSHOT},
    {WEFT_ALL_REDUCE, 1024, WEFT_ALGORITHM_TWOSHOT},
    {WEFT_ALL_REDUCE, 1025, WEFT_ALGORITHM_ONESHOT},
    {WEFT_ALL_REDUCE, 16 << 10, WEFT_ALGORITHM_ONESHOT},
    {WEFT_ALL_REDUCE, (16 << 10) + 1, WEFT_ALGORITHM_ONESHOT_PULL}, /* more than packet_bytes */
    {WEFT_ALL_REDUCE, 1 << 30, WEFT_ALGORITHM_ONESHOT_PULL},
    {WEFT_REDUCE_SCATTER, 1000, WEFT_ALGORITHM_ONESHOT_PULL},
    {WEFT_REDUCE_SCATTER, 1 << 30, WEFT_ALGORITHM_ONESHOT_PULL},
    {WEFT_ALL_GATHER, 100, WEFT_ALGORITHM_PUSH},
    {WEFT_ALL_GATHER, 101, WEFT_ALGORITHM_ONESHOT},
    {WEFT_ALL_TO_ALL, 16, WEFT_ALGORITHM_ONESHOT}, /* the row is for 2 ranks */
    {WEFT_BROADCAST, 16, WEFT_ALGORITHM_ONESHOT},
};

static int check_reason(const weft_coll *coll, weft_collective collective, uint64_t bytes,
                        const weft_coll_explanation *expected)
{
    weft_coll_explanation found = WEFT_INIT(weft_coll_explanation);
    CHECK_OK(weft_coll_explain(coll, collective, WEFT_ALGORITHM_AUTO, bytes, &found));
    CHECK(found.reason == expected->reason &&
              found.algorithm == weft_coll_algorithm(coll, collective, bytes) &&
              found.num_blocks == expected->num_blocks && found.num_warps == expected->num_warps &&
              found.table_line == expected->table_line &&
              found.table_max_bytes == expected->table_max_bytes,
          "collective %d of %llu bytes: reason %d, %d blocks, %d warps, line %d, up to %llu",
          collective, (unsigned long long)bytes, found.reason, found.num_blocks, found.num_warps,
          found.table_line, (unsigned long long)found.table_max_bytes);
    CHECK(strcmp(found.table, found.table_line > 0 ? path : "") == 0, "\"%s\"", found.table);
    CHECK(found.expected_us == 0, "expected %f", found.expected_us);
    return 0;
}

static int check_reasons(const weft_coll *coll)
{
    static const weft_coll_explanation first = {.reason = WEFT_COLL_TABLE,
                                                .num_blocks = 2,
                                                .num_warps = 3,
                                                .table_max_bytes = 1024,
                                                .table_line = 1},
                                       last = {.reason = WEFT_COLL_TABLE,
                                               .num_blocks = 1,
                                               .num_warps = 2,
                                               .table_max_bytes = UINT64_MAX,
                                               .table_line = 3},
                                       none = {.reason = WEFT_COLL_FORMULA};
    weft_coll_explanation found = WEFT_INIT(weft_coll_explanation);
    if (check_reason(coll, WEFT_ALL_REDUCE, 1024, &first) ||
        check_reason(coll, WEFT_ALL_REDUCE, 1 << 20, &last) ||
        check_reason(coll, WEFT_ALL_TO_ALL, 16, &none))
        return 1;
    CHECK_OK(weft_coll_explain(coll, WEFT_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT, 1 << 20, &found));
    CHECK(found.reason == WEFT_COLL_PINNED && found.algorithm == WEFT_ALGORITHM_TWOSHOT &&
              found.table_line == 0,
          "reason %d, algorithm %d", found.reason, found.algorithm);
    CHECK_ERROR(weft_coll_explain(coll, WEFT_ALL_REDUCE, WEFT_ALGORITHM_ONESHOT, 1 << 20, &found),
                WEFT_ERROR_UNSUPPORTED, "(packet_bytes)");
    CHECK_ERROR(weft_coll_explain(coll, WEFT_ALL_GATHER, WEFT_ALGORITHM_TWOSHOT, 8, &found),
                WEFT_ERROR_UNSUPPORTED, "algorithm twoshot cannot do all_gather");
    return 0;
}

static int check_choices(struct ep_rank *self, weft_coll *coll)
{
    static const uint64_t counts[] = {25, 100, 1000, 5000, 20000};
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (check_choice(coll, choices[i].collective, choices[i].bytes, choices[i].algorithm))
            return 1;
    for (int operation = 0; operation < COLL_NUM_OPERATIONS; operation++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            const struct coll_case spec = coll_case_random(
                i, NUM_RANKS, (enum coll_operation)operation, WEFT_FP32, WEFT_SUM, counts[i]);
            if (coll_check(self, coll, &spec, "by the table"))
                return 1;
        }
    }
    return 0;
}

static int create_and_check(struct ranks_context *context)
{
    struct ep_rank self;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    static const weft_coll_explanation pin = {.reason = WEFT_COLL_PINNED, .num_blocks = 1};
    weft_coll *coll, *pinned;
    config.packet_bytes = 16 << 10;
    CHECK(tell_rank_0(context, path) == 0, "setenv");
    if (ep_rank_open(&self, context, 0, 8 << 20))
        return 1;
    CHECK_OK(weft_coll_create(self.comm, &config, &coll));
    if (check_choices(&self, coll) || check_reasons(coll))
        return 1;
    config.choices = WEFT_ARGS(weft_coll_choice, .collective = WEFT_ALL_REDUCE,
                               .algorithm = WEFT_ALGORITHM_TWOSHOT_PACKETS);
    config.num_choices = 1;
    config.num_blocks = 1;
    CHECK_OK(weft_coll_create(self.comm, &config, &pinned));
    if (check_choice(pinned, WEFT_ALL_REDUCE, 1000, WEFT_ALGORITHM_TWOSHOT_PACKETS) ||
        check_choice(pinned, WEFT_ALL_GATHER, 100, WEFT_ALGORITHM_PUSH) ||
        check_reason(pinned, WEFT_ALL_REDUCE, 1000, &pin))
        return 1;
    CHECK_OK(weft_comm_host_barrier(self.comm));
    CHECK_OK(weft_coll_destroy(pinned));
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}

TEST(rank_0_chooses_for_all)
{
    static const char *const rows[] = {
        "3 all_reduce 1K twoshot 2 3",
        "3 all_reduce 64K oneshot 3 0",
        "3 all_reduce inf oneshot_pull 1 2",
        "3 reduce_scatter inf oneshot_pull 3 0",
        "3 all_gather 100 push 2 2",
        "2 all_to_all inf push 0 0",
        NULL,
    };
    write_table(rows);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, create_and_check, NULL), 0);
}

/* Afterwards all goes on. */
static int create_and_fail(struct ranks_context *context)
{
    struct ep_rank self;
    weft_coll *coll;
    const char *missing = "/nonexistent/rank0";
    char place[64];
    snprintf(place, sizeof place, "rank 0's WEFT_TUNING: %s:2: ", path);
    if (ep_rank_open(&self, context, 0, 1 << 20))
        return 1;
    CHECK(tell_rank_0(context, path) == 0, "setenv");
    CHECK_ERROR(weft_coll_create(self.comm, NULL, &coll), WEFT_ERROR_INVALID_ARGUMENT, place);
    CHECK(tell_rank_0(context, missing) == 0, "setenv");
    CHECK_ERROR(weft_coll_create(self.comm, NULL, &coll), WEFT_ERROR_INVALID_ARGUMENT, missing);
    CHECK(tell_rank_0(context, "") == 0, "setenv");
    CHECK_OK(weft_coll_create(self.comm, NULL, &coll));
    if (check_choice(coll, WEFT_ALL_REDUCE, 16, WEFT_ALGORITHM_ONESHOT))
        return 1;
    CHECK_OK(weft_comm_host_barrier(self.comm));
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}

TEST(all_ranks_are_told)
{
    static const char *const rows[] = {"3 all_reduce inf twoshot 0 0",
                                       "3 broadcast inf twoshot 0 0", NULL};
    write_table(rows);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, create_and_fail, NULL), 0);
}

/* Ranks whose counts differ can have launches of different sizes then: the ends of all are the
 * error. */
static int call_with_other_counts(struct ranks_context *context)
{
    struct ep_rank self;
    weft_coll *coll;
    void *data;
    const uint64_t count = context->rank == 1 ? 1000 : 100;
    CHECK(tell_rank_0(context, path) == 0, "setenv");
    if (ep_rank_open(&self, context, 0, 1 << 20))
        return 1;
    CHECK_OK(weft_coll_create(self.comm, NULL, &coll));
    CHECK_OK(weft_heap_alloc(self.comm, 4000, &data));
    weft_result result =
        weft_coll_all_reduce(coll,
                             WEFT_ARGS(weft_coll_args, .send = data, .recv = data,
                                       .count = (int64_t)count, .dtype = WEFT_FP32, .op = WEFT_SUM),
                             self.stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(self.stream);
    CHECK(result == WEFT_ERROR_MISMATCH, "\"%s\": %s", weft_result_string(result),
          weft_last_error());
    ranks_barrier(context); /* nobody leaves before all have been told */
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}

TEST(other_counts_with_other_blocks)
{
    static const char *const rows[] = {"3 all_reduce 1K twoshot 2 1",
                                       "3 all_reduce inf twoshot 5 2", NULL};
    write_table(rows);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, call_with_other_counts, NULL), 0);
}

/* ---------------------------------------------------------------- relays */

/* Of rows of 8 MiB the root sends 8 MiB less. */
TEST_ON_RANKS(auto_relays_large_broadcasts_on_gpus, RANKS_PROCESSES, NUM_RANKS)
{
    struct ep_rank self;
    weft_coll *coll;
    if (ep_rank_open(&self, context, 0, 64 << 20))
        return 1;
    CHECK_OK(
        weft_coll_create(self.comm, WEFT_ARGS(weft_coll_config, .packet_bytes = 16 << 10), &coll));
    const weft_algorithm large = weft_comm_machine(self.comm) == WEFT_MACHINE_CUDA
                                     ? WEFT_ALGORITHM_RELAY
                                     : WEFT_ALGORITHM_PUSH;
    if (check_choice(coll, WEFT_BROADCAST, (8 << 20) - 1, WEFT_ALGORITHM_PUSH) ||
        check_choice(coll, WEFT_BROADCAST, 8 << 20, large))
        return 1;
    CHECK_OK(weft_comm_host_barrier(self.comm));
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}

int main(void)
{
    tests_choose_machine();
    return tests_run(open_file, remove_file);
}
