/* SPDX-License-Identifier: MIT */
/* The handshake between the progress thread, which naps and sleeps, and the threads that post to
 * it and drive the net in its place (net/progress.c): no schedule loses a wake-up, and without
 * any one of its fences some schedule does: it is told, or nobody can go on. */
#include <string.h>

#include "harness/cmocka.h"
#include "progress_job.h"
#include "schedules.h"

enum { NUM_SEEDS = 10000, NUM_SEEDS_WEAKENED = 100000, NUM_FENCES = 4 };

static void run_schedule(const void *none, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *result)
{
    (void)none;
    progress_job_run(seed, weakened_site, result);
}

TEST(no_wake_up_is_lost)
{
    const struct progress_counts *counts = &progress_counts;
    schedules_expect_sound(&(struct schedules){run_schedule, NULL, NUM_SEEDS});
    print_message("%d schedules: %d naps, %d sleeps, %d ends by a wake-up, %d by time, "
                  "%d times somebody else drove\n",
                  NUM_SEEDS, (int)counts->num_naps, (int)counts->num_sleeps, (int)counts->num_woken,
                  (int)counts->num_ended_by_time, (int)counts->num_refused_locks);
    assert_true(counts->num_naps > 0 && counts->num_sleeps > 0 && counts->num_woken > 0 &&
                counts->num_ended_by_time > 0 && counts->num_refused_locks > 0);
}

static int is_of_progress(const struct weft__sim_site *site)
{
    return strcmp(site->file, "progress.c") == 0;
}

TEST(every_fence_is_needed)
{
    const struct schedules schedules = {run_schedule, NULL, NUM_SEEDS_WEAKENED};
    assert_int_equal(schedules_expect_needed(&schedules, is_of_progress), NUM_FENCES);
}
