/* SPDX-License-Identifier: MIT */
/* What the sim itself promises: races are told with both lines, stores are seen late and in any
 * order, and a seed is a schedule. */
#include <stdio.h>
#include <string.h>

#include "harness/cmocka.h"
#include "job.h"
#include "machine/sim/world.h"
#include "scenario.h"
#include "sim_job.h"

enum { NUM_SEEDS = 300, MAX_TOKENS = 8 };

static struct weft__sim_result result; /* large */

TEST(an_unordered_pair_is_a_race_of_two_lines)
{
    char write_place[64], read_place[64];
    struct job job = {.program = weft__sim_unordered, .num_launches = 1, .num_warps = 1};
    snprintf(write_place, sizeof write_place, "planted_unordered.c:%d", unordered_write_line);
    snprintf(read_place, sizeof read_place, "planted_unordered.c:%d", unordered_read_line);
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        job_run(&job, seed, &result);
        assert_int_equal(result.num_races, 1); /* in every schedule, whichever comes first */
        assert_non_null(strstr(result.report, write_place));
        assert_non_null(strstr(result.report, read_place));
        assert_non_null(strstr(result.report, "heap of rank 1"));
    }
}

TEST(a_release_that_is_acquired_orders)
{
    struct job job = {.program = weft__sim_planted_signal,
                      .form = FORM_CORRECTED,
                      .num_launches = 1,
                      .num_warps = 1};
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        job_run(&job, seed, &result);
        assert_string_equal(result.report, "");
        assert_false(sim_is_caught(&result));
    }
}

struct looks { /* how many saw one slot written and not the other */
    int num_first_only, num_second_only;
};

static struct looks look_at(weft__program_fn *program)
{
    struct job job = {.program = program, .num_launches = 1, .num_warps = 1};
    struct looks looks = {0, 0};
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        job_run(&job, seed, &result);
        for (int32_t i = 0; i < JOB_LOOKS; i++) {
            const int32_t *seen = job.states[1].seen[i];
            looks.num_first_only += seen[0] && !seen[1];
            looks.num_second_only += seen[1] && !seen[0];
        }
    }
    return looks;
}

TEST(stores_are_seen_late_and_in_any_order)
{
    const struct looks looks = look_at(weft__sim_relaxed);
    assert_true(looks.num_first_only > 0);
    assert_true(looks.num_second_only > 0); /* the earlier store was late */
}

TEST(rows_are_seen_later_than_what_follows_a_warp_sync)
{
    const struct looks looks = look_at(weft__sim_late_rows);
    assert_true(looks.num_first_only > 0);
    assert_true(looks.num_second_only > 0);
}

TEST(packets_are_seen_late_and_in_any_order)
{
    const struct looks looks = look_at(weft__sim_late_packets);
    assert_true(looks.num_first_only > 0);
    assert_true(looks.num_second_only > 0);
}

TEST(a_row_operation_is_traced_with_its_line)
{
    char traced[64];
    struct job job = {.program = weft__sim_planted_row_read,
                      .form = FORM_PLANTED,
                      .num_launches = 1,
                      .num_warps = 1,
                      .num_trace_events = 8};
    job_run(&job, 0, &result);
    snprintf(traced, sizeof traced, "planted_rows.c:%d copy heap of rank", row_copy_line);
    assert_non_null(strstr(result.report, traced));
    snprintf(traced, sizeof traced, "row write by rank");
    assert_non_null(strstr(result.report, traced));
}

/* No lane of it begins and waits for the others in vain. */
TEST(a_launch_of_more_lanes_than_there_are_is_refused)
{
    struct job job = {.program = weft__sim_planted_barrier,
                      .form = FORM_CORRECTED,
                      .num_launches = 1,
                      .num_warps = SIM_MAX_FIBERS};
    job_run(&job, 0, &result);
    assert_int_equal(result.num_wrong, JOB_RANKS);
    assert_int_equal(result.num_hangs, 0);
    assert_int_equal(result.num_races, 0);
}

TEST(a_seed_is_a_schedule)
{
    static struct scenario_outcome first, second;
    for (int32_t op = 0; op < NUM_SCENARIO_OPS; op++) {
        struct scenario_request request = {.op = (enum scenario_op)op,
                                           .num_ranks = 2,
                                           .num_nodes = SCENARIO_DRAWN,
                                           .max_tokens = MAX_TOKENS,
                                           .policy = WEFT__SIM_MIXED,
                                           .weakened_site = WEFT__SIM_NO_SITE};
        uint64_t previous_hash = 0;
        for (request.seed = 0; request.seed < 20; request.seed++) {
            assert_int_equal(scenario_run(&request, &first), 0);
            assert_int_equal(scenario_run(&request, &second), 0);
            assert_true(first.sim.schedule_hash == second.sim.schedule_hash);
            assert_true(first.sim.num_steps == second.sim.num_steps);
            assert_true(first.sim.schedule_hash != previous_hash);
            previous_hash = first.sim.schedule_hash;
        }
    }
}
