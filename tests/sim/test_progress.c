/* SPDX-License-Identifier: MIT */
/* The handshake between the progress thread, which naps and sleeps, and the threads that post to
 * it and drive the net in its place (net/progress.c): no schedule loses a wake-up, and without
 * any one of its fences some schedule does: it is told, or nobody can go on. */
#include <string.h>

#include "harness/cmocka.h"
#include "progress_job.h"

enum { NUM_SEEDS = 10000, NUM_SEEDS_WEAKENED = 100000, NUM_FENCES = 4 };

static struct weft__sim_result result; /* large */

static int is_caught(void)
{
    return result.num_races > 0 || result.num_wrong > 0 || result.num_hangs > 0;
}

TEST(no_wake_up_is_lost)
{
    uint64_t num_steps = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        progress_job_run(seed, WEFT__SIM_NO_SITE, &result);
        if (is_caught())
            print_message("seed %d: %s\n", (int)seed, result.report);
        assert_false(is_caught());
        num_steps += result.num_steps;
    }
    const struct progress_counts *counts = &progress_counts;
    print_message("%d schedules of %d steps: %d naps, %d sleeps, %d ends by a wake-up, %d by time, "
                  "%d times somebody else drove\n",
                  NUM_SEEDS, (int)(num_steps / NUM_SEEDS), (int)counts->num_naps,
                  (int)counts->num_sleeps, (int)counts->num_woken, (int)counts->num_ended_by_time,
                  (int)counts->num_refused_locks);
    assert_true(counts->num_naps > 0 && counts->num_sleeps > 0 && counts->num_woken > 0 &&
                counts->num_ended_by_time > 0 && counts->num_refused_locks > 0);
}

TEST(every_fence_is_needed)
{
    int num_fences = 0;
    for (int32_t site = 0; site < weft__sim_num_sites(); site++) {
        const struct weft__sim_site *fence = weft__sim_site(site);
        uint64_t seed = 0;
        if (strcmp(fence->file, "progress.c") != 0)
            continue;
        do
            progress_job_run(seed, site, &result);
        while (!is_caught() && ++seed < NUM_SEEDS_WEAKENED);
        print_message("without the fence at %s:%d: %s\n", fence->file, fence->line,
                      is_caught() ? "caught" : "nothing is found");
        assert_true(is_caught());
        num_fences++;
    }
    assert_int_equal(num_fences, NUM_FENCES);
}
