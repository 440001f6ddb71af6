/* SPDX-License-Identifier: MIT */
/* The sim finds bugs from the field that were planted, and nothing in their corrected forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "job.h"

enum { NUM_SEEDS = 500 };

static struct weft__sim_result result; /* large */

static int count_caught(weft__program_fn *program, enum form form, int32_t num_launches,
                        int32_t num_warps)
{
    struct job job = {
        .program = program, .form = form, .num_launches = num_launches, .num_warps = num_warps};
    int num_caught = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        job_run(&job, seed, &result);
        num_caught += job_is_caught(&result);
        if (form == FORM_CORRECTED && job_is_caught(&result))
            print_message("seed %d: %s\n", (int)seed, result.report);
    }
    return num_caught;
}

static void check_both_forms(weft__program_fn *program, int32_t num_launches, int32_t num_warps)
{
    const int num_caught = count_caught(program, FORM_PLANTED, num_launches, num_warps);
    print_message("caught in %d of %d schedules\n", num_caught, NUM_SEEDS);
    assert_true(num_caught > 0);
    assert_int_equal(count_caught(program, FORM_CORRECTED, num_launches, num_warps), 0);
}

static void a_signal_before_its_data_is_found(void **state)
{
    (void)state;
    check_both_forms(weft__sim_planted_signal, 4, 1);
}

static void a_parity_per_handle_is_found(void **state)
{
    (void)state;
    check_both_forms(weft__sim_planted_parity, 4, 1);
}

static void a_counter_without_an_epoch_is_found(void **state)
{
    (void)state;
    check_both_forms(weft__sim_planted_epoch, 4, 1);
}

static void a_barrier_that_pairs_different_calls_is_found(void **state)
{
    (void)state;
    check_both_forms(weft__sim_planted_barrier, 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_before_its_data_is_found),
        cmocka_unit_test(a_parity_per_handle_is_found),
        cmocka_unit_test(a_counter_without_an_epoch_is_found),
        cmocka_unit_test(a_barrier_that_pairs_different_calls_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
