/* SPDX-License-Identifier: MIT */
/* The protocol by which threads share a queue of a NIC (machine/nic_post.h), against the model of
 * the NIC: no schedule breaks a rule of posting, loses a doorbell, or stands still. Without any one
 * of its fences, acquires and releases some schedule does, and with each planted bug. */
#include <string.h>

#include "harness/cmocka.h"
#include "nic_job.h"
#include "schedules.h"

enum { NUM_SEEDS = 4000, NUM_SEEDS_OF_TROUBLE = 1000, NUM_SEEDS_WEAKENED = 50000, NUM_SITES = 7 };

static void run_schedule(const void *untyped, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *result)
{
    struct nic_job job = *(const struct nic_job *)untyped;
    job.seed = seed;
    job.weakened_site = weakened_site;
    nic_job_run(&job, result);
}

static void expect_nothing(enum nic_trouble trouble, uint64_t num_seeds)
{
    const struct nic_job job = {.trouble = trouble};
    schedules_expect_sound(&(struct schedules){run_schedule, &job, num_seeds});
}

TEST(no_schedule_breaks_a_rule)
{
    const struct nic_job_counts *counts = &nic_job_counts;
    expect_nothing(NIC_NO_TROUBLE, NUM_SEEDS);
    print_message("%d groups, %d doorbells, %d waits for room\n", (int)counts->num_groups,
                  (int)counts->num_rings, (int)counts->num_room_waits);
    assert_true(counts->num_rings < counts->num_groups && counts->num_room_waits > 0);
    assert_int_equal(counts->num_failures, 0);
}

/* All threads end, with the cause. */
TEST(a_dead_peer_ends_all_waits)
{
    expect_nothing(NIC_DEAD_PEER, NUM_SEEDS_OF_TROUBLE);
    assert_true(nic_job_counts.num_causes > 0 && nic_job_counts.num_flushes > 0);
}

TEST(a_nic_that_does_nothing_ends_all_waits)
{
    nic_job_counts.num_failures = 0;
    expect_nothing(NIC_STUCK_MODEL, NUM_SEEDS_OF_TROUBLE);
    assert_true(nic_job_counts.num_failures > 0);
}

static int is_of_nic_post(const struct weft__sim_site *site)
{
    return strstr(site->file, "nic_post.h") != NULL;
}

TEST(every_site_is_needed)
{
    const struct nic_job job = {.trouble = NIC_NO_TROUBLE};
    const struct schedules schedules = {run_schedule, &job, NUM_SEEDS_WEAKENED};
    assert_int_equal(schedules_expect_needed(&schedules, is_of_nic_post), NUM_SITES);
}

TEST(each_planted_bug_is_found)
{
    for (int plant = NIC_PLANT_NONE + 1; plant < NIC_NUM_PLANTS; plant++) {
        const struct nic_job job = {.plant = (enum nic_plant)plant,
                                    .trouble = plant == NIC_PLANT_ERROR_IGNORED ? NIC_DEAD_PEER
                                                                                : NIC_NO_TROUBLE};
        const uint64_t schedule = schedules_until_caught(
            &(struct schedules){run_schedule, &job, NUM_SEEDS_WEAKENED}, WEFT__SIM_NO_SITE);
        print_message("plant %d: caught in schedule %d\n", plant, (int)schedule);
        assert_true(schedule > 0);
    }
}
