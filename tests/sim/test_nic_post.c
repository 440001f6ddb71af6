/* SPDX-License-Identifier: MIT */
/* The protocol by which threads share a queue of a NIC (machine/nic_post.h), against the model of
 * the NIC: no schedule breaks a rule of posting, loses a doorbell, or stands still. Without any one
 * of its fences, acquires and releases some schedule does, and with each planted bug. */
#include <string.h>

#include "harness/cmocka.h"
#include "nic_job.h"

enum { NUM_SEEDS = 4000, NUM_SEEDS_OF_TROUBLE = 1000, NUM_SEEDS_WEAKENED = 50000, NUM_SITES = 7 };

static struct weft__sim_result result; /* large */

static int is_caught(const struct nic_job *job)
{
    nic_job_run(job, &result);
    return result.num_races > 0 || result.num_wrong > 0 || result.num_hangs > 0;
}

static void expect_nothing(struct nic_job job, uint64_t num_seeds)
{
    for (job.seed = 0; job.seed < num_seeds; job.seed++)
        if (is_caught(&job))
            fail_msg("seed %d: %s", (int)job.seed, result.report);
}

TEST(no_schedule_breaks_a_rule)
{
    const struct nic_job_counts *counts = &nic_job_counts;
    expect_nothing((struct nic_job){.weakened_site = WEFT__SIM_NO_SITE}, NUM_SEEDS);
    print_message("%d groups, %d doorbells, %d waits for room\n", (int)counts->num_groups,
                  (int)counts->num_rings, (int)counts->num_room_waits);
    assert_true(counts->num_rings < counts->num_groups && counts->num_room_waits > 0);
    assert_int_equal(counts->num_failures, 0);
}

/* All threads end, with the cause. */
TEST(a_dead_peer_ends_all_waits)
{
    expect_nothing((struct nic_job){.weakened_site = WEFT__SIM_NO_SITE, .trouble = NIC_DEAD_PEER},
                   NUM_SEEDS_OF_TROUBLE);
    assert_true(nic_job_counts.num_causes > 0 && nic_job_counts.num_flushes > 0);
}

TEST(a_nic_that_does_nothing_ends_all_waits)
{
    nic_job_counts.num_failures = 0;
    expect_nothing((struct nic_job){.weakened_site = WEFT__SIM_NO_SITE, .trouble = NIC_STUCK_MODEL},
                   NUM_SEEDS_OF_TROUBLE);
    assert_true(nic_job_counts.num_failures > 0);
}

/* Returns the number of seeds that it took. */
static uint64_t catch_it(struct nic_job job)
{
    for (job.seed = 0; job.seed < NUM_SEEDS_WEAKENED; job.seed++)
        if (is_caught(&job))
            break;
    return job.seed;
}

TEST(every_site_is_needed)
{
    int num_sites = 0;
    for (int32_t i = 0; i < weft__sim_num_sites(); i++) {
        const struct weft__sim_site *site = weft__sim_site(i);
        if (strstr(site->file, "nic_post.h") == NULL)
            continue;
        const uint64_t seed = catch_it((struct nic_job){.weakened_site = i});
        print_message("without the %s at line %d: %s (seed %d)\n", site->kind, site->line,
                      seed < NUM_SEEDS_WEAKENED ? "caught" : "nothing is found", (int)seed);
        assert_true(seed < NUM_SEEDS_WEAKENED);
        num_sites++;
    }
    assert_int_equal(num_sites, NUM_SITES);
}

TEST(each_planted_bug_is_found)
{
    for (int plant = NIC_PLANT_NONE + 1; plant < NIC_NUM_PLANTS; plant++) {
        const uint64_t seed = catch_it((struct nic_job){
            .weakened_site = WEFT__SIM_NO_SITE,
            .plant = (enum nic_plant)plant,
            .trouble = plant == NIC_PLANT_ERROR_IGNORED ? NIC_DEAD_PEER : NIC_NO_TROUBLE});
        print_message("plant %d: %s (seed %d)\n", plant,
                      seed < NUM_SEEDS_WEAKENED ? "caught" : "nothing is found", (int)seed);
        assert_true(seed < NUM_SEEDS_WEAKENED);
    }
}
