/* SPDX-License-Identifier: MIT */
#include "topo/heads.h"

#include "comm/error.h"
#include "topo/constants.h"
#include "topo/file.h"
#include "topo/paths.h"
#include "topo/search.h"

/* Ranks are not told twice in a file (topo/build.c), so these are all if none is out of range. */
static int has_ranks(const struct weft__topo *topo, int32_t num_ranks)
{
    const int32_t num_gpus = weft__topo_count(topo, WEFT__TOPO_GPU);
    int has_them = num_gpus == num_ranks;
    for (int32_t i = 0; i < num_gpus; i++) {
        const int32_t rank = weft__topo_at(topo, WEFT__TOPO_GPU, i)->gpu.rank;
        has_them &= rank >= 0 && rank < num_ranks;
    }
    return has_them;
}

static weft_result search(struct weft__topo *topo, int32_t num_ranks, int32_t *heads,
                          int32_t *num_heads)
{
    const struct weft__topo_access access = {.p2p_level = -1};
    const struct weft__search_wish wish = {WEFT__CHANNELS_NVLS, WEFT__PATTERN_NVLS, 1, num_ranks,
                                           WEFT__TOPO_ONE_NODE};
    struct weft__channels *channels = NULL;
    WEFT__TRY(weft__topo_compute_paths(topo, &access));
    const weft_result result = weft__search(topo, &wish, &channels);
    for (int32_t i = 0; result == WEFT_OK && i < channels->num_channels; i++)
        heads[i] = channels->channel[i].ranks[0];
    *num_heads = result == WEFT_OK ? channels->num_channels : 0;
    weft__channels_free(channels);
    return result;
}

weft_result weft__topo_find_heads(const char *path, int32_t num_ranks, int32_t *heads,
                                  int32_t *num_heads)
{
    const struct weft__topo_constants *constants;
    struct weft__xml *system = NULL;
    struct weft__topo *topo = NULL;
    *num_heads = 0;
    weft_result result = weft__topo_constants_of(NULL, &constants);
    if (result == WEFT_OK)
        result = weft__topo_read(path, &system);
    if (result == WEFT_OK)
        result = weft__topo_build(system, constants, &topo);
    if (result == WEFT_OK && has_ranks(topo, num_ranks))
        result = search(topo, num_ranks, heads, num_heads);
    weft__topo_free(topo);
    weft__xml_remove(system);
    return result;
}
