/* SPDX-License-Identifier: MIT */
/* The sim finds bugs from the field that were planted, and nothing in their corrected forms. */
#include <string.h>

#include "harness/cmocka.h"
#include "job.h"
#include "sim_job.h"

enum { NUM_SEEDS = 500 };

static struct weft__sim_result result; /* large */

struct planted {
    weft__program_fn *program;
    int32_t num_launches;
    int32_t num_warps;
    const char *told; /* by the report of what is caught; NULL: anything */
};

static int is_told(const char *told)
{
    return told == NULL || strstr(result.report, told) != NULL;
}

static int count_caught(const struct planted *planted, enum form form)
{
    struct job job = {.program = planted->program,
                      .form = form,
                      .num_launches = planted->num_launches,
                      .num_warps = planted->num_warps};
    int num_caught = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        job_run(&job, seed, &result);
        num_caught += sim_is_caught(&result) && (form == FORM_CORRECTED || is_told(planted->told));
        if (form == FORM_CORRECTED && sim_is_caught(&result))
            print_message("seed %d: %s\n", (int)seed, result.report);
    }
    return num_caught;
}

static void check_both_forms(struct planted planted)
{
    const int num_caught = count_caught(&planted, FORM_PLANTED);
    print_message("caught in %d of %d schedules\n", num_caught, NUM_SEEDS);
    assert_true(num_caught > 0);
    assert_int_equal(count_caught(&planted, FORM_CORRECTED), 0);
}

/* A program, its launches and warps, and what the report must tell of it; NULL: anything. */
#define PLANTED(name, ...)                                                                         \
    TEST(name)                                                                                     \
    {                                                                                              \
        check_both_forms((struct planted){__VA_ARGS__});                                           \
    }

PLANTED(a_signal_before_its_data_is_found, weft__sim_planted_signal, 4, 1, NULL)
PLANTED(a_row_sent_over_another_is_found, weft__sim_planted_row_reuse, 4, 1,
        "row sent over one that may still be read")
PLANTED(a_row_taken_for_a_signal_is_found, weft__sim_planted_row_news, 4, 1, "is not ordered after")
PLANTED(a_parity_per_handle_is_found, weft__sim_planted_parity, 4, 1, NULL)
PLANTED(a_counter_without_an_epoch_is_found, weft__sim_planted_epoch, 4, 1, NULL)
PLANTED(a_barrier_that_pairs_different_calls_is_found, weft__sim_planted_barrier, 1, 2, NULL)
PLANTED(a_read_of_unwritten_memory_is_found, weft__sim_planted_unwritten, 1, 1,
        "read of memory that nobody has written")
PLANTED(a_use_of_freed_heap_is_found, weft__sim_planted_freed, 1, 1,
        "access to memory that has been freed")
PLANTED(a_signal_that_nobody_waits_for_is_found, weft__sim_planted_unawaited, 4, 1,
        "signal that no one waits for")
PLANTED(a_write_into_a_slot_still_being_read_is_found, weft__sim_planted_overwrite, 4, 1,
        "the write is not ordered after the read")
PLANTED(a_credit_that_tells_of_stores_is_found, weft__sim_planted_credit, 1, 1,
        "the read is not ordered after the write")
PLANTED(a_credit_before_the_slot_is_read_is_found, weft__sim_planted_room, 4, 1,
        "the write is not ordered after the read")
PLANTED(a_word_cleared_too_late_is_found, weft__sim_planted_clear, 1, 1,
        "the two writes are not ordered")
PLANTED(a_wait_that_sees_an_older_signal_is_found, weft__sim_planted_stale, 1, 1,
        "the read is not ordered after the write")
PLANTED(a_signal_that_is_not_seen_is_found, weft__sim_planted_known, 1, 1,
        "set to 2, the last value awaited was 1")
PLANTED(tickets_taken_one_by_one_are_found, weft__sim_planted_tickets, 2, 2, NULL)
PLANTED(a_row_read_while_it_is_written_is_found, weft__sim_planted_row_read, 1, 1,
        "the row operation may still be under way")
PLANTED(a_sum_read_while_it_is_written_is_found, weft__sim_planted_row_reduce, 2, 1,
        "the row operation may still be under way")
PLANTED(a_partial_sum_read_while_it_is_written_is_found, weft__sim_planted_row_sum, 2, 1,
        "the row operation may still be under way")
PLANTED(a_weighted_sum_read_while_it_is_written_is_found, weft__sim_planted_row_weighted, 2, 1,
        "the row operation may still be under way")
PLANTED(a_row_restored_while_it_is_quantised_is_found, weft__sim_planted_row_quantise, 2, 1,
        "the row operation may still be under way")
PLANTED(a_row_overwritten_while_it_is_read_is_found, weft__sim_planted_row_source, 1, 1,
        "the row operation may still be under way")
PLANTED(a_row_told_of_while_it_is_written_is_found, weft__sim_planted_row_signal, 1, 1,
        "row write by")
