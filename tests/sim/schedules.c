/* SPDX-License-Identifier: MIT */
#include "schedules.h"

#include <string.h>

#include "harness/cmocka.h"

static struct weft__sim_result result; /* large */

int sim_is_caught(const struct weft__sim_result *caught)
{
    return caught->num_races > 0 || caught->num_wrong > 0 || caught->num_hangs > 0;
}

void sim_expect_sound(const struct weft__sim_result *sound, uint64_t seed)
{
    if (sim_is_caught(sound))
        fail_msg("seed %d: %s", (int)seed, sound->report);
}

void schedules_expect_sound(const struct schedules *schedules)
{
    for (uint64_t seed = 0; seed < schedules->num_seeds; seed++) {
        schedules->run(schedules->job, seed, WEFT__SIM_NO_SITE, &result);
        sim_expect_sound(&result, seed);
    }
}

uint64_t schedules_count_races(const struct schedules *schedules, const char *told)
{
    uint64_t num_found = 0;
    for (uint64_t seed = 0; seed < schedules->num_seeds; seed++) {
        schedules->run(schedules->job, seed, WEFT__SIM_NO_SITE, &result);
        num_found += result.num_races > 0 && strstr(result.report, told) != NULL;
    }
    print_message("found in %d of %d schedules: %s\n", (int)num_found, (int)schedules->num_seeds,
                  told);
    return num_found;
}

uint64_t schedules_until_caught(const struct schedules *schedules, int32_t weakened_site)
{
    for (uint64_t seed = 0; seed < schedules->num_seeds; seed++) {
        schedules->run(schedules->job, seed, weakened_site, &result);
        if (sim_is_caught(&result))
            return seed + 1;
    }
    return 0;
}

int schedules_expect_needed(const struct schedules *schedules,
                            int (*is_meant)(const struct weft__sim_site *site))
{
    int num_sites = 0, num_needless = 0;
    for (int32_t i = 0; i < weft__sim_num_sites(); i++) {
        const struct weft__sim_site *site = weft__sim_site(i);
        if (!is_meant(site))
            continue;
        const uint64_t schedule = schedules_until_caught(schedules, i);
        print_message("without the %s at %s:%d: caught in schedule %d\n", site->kind, site->file,
                      site->line, (int)schedule);
        num_sites++;
        num_needless += schedule == 0;
    }
    assert_int_equal(num_needless, 0);
    return num_sites;
}
