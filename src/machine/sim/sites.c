/* SPDX-License-Identifier: MIT */
/* The ordering sites of the programs, found by passing them, and the one that is weakened. */
#include <string.h>

#include "machine/sim/world.h"

enum { MAX_SITES = 256 };

static struct weft__sim_site sites[MAX_SITES];
static int32_t num_sites;

static int compare(const struct weft__sim_site *site, struct weft__sim_place place)
{
    const int by_file = strcmp(site->file, place.file);
    return by_file != 0 ? by_file : site->line - place.line;
}

/* Where the site is, or where it belongs. */
static int32_t find(struct weft__sim_place place)
{
    int32_t low = 0, high = num_sites;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (compare(&sites[middle], place) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int sim_site_pass(struct weft__sim_place place, enum sim_site_kind kind)
{
    static const char *const kinds[] = {
        "release", "acquire", "acquire-release", "block sync", "warp sync", "row sync", "fence"};
    const int32_t i = find(place);
    if (i == num_sites || compare(&sites[i], place) != 0) {
        if (num_sites == MAX_SITES)
            return 0;
        memmove(&sites[i + 1], &sites[i], (size_t)(num_sites - i) * sizeof(*sites));
        sites[i] = (struct weft__sim_site){place.file, place.line, kinds[kind], 0};
        num_sites++;
    }
    sites[i].num_passes++;
    return i == sim_world->config->weakened_site;
}

int32_t weft__sim_num_sites(void)
{
    return num_sites;
}

const struct weft__sim_site *weft__sim_site(int32_t site)
{
    return site >= 0 && site < num_sites ? &sites[site] : NULL;
}
