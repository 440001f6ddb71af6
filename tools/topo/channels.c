/* SPDX-License-Identifier: MIT */
#include "topo/channels.h"

#include <stdlib.h>
#include <string.h>

#include "comm/error.h"

weft_result weft__channels_create(int32_t num_gpus, struct weft__channels **channels)
{
    struct weft__channels *new = calloc(1, sizeof *new);
    int32_t *ranks = calloc((size_t)WEFT__MAX_CHANNELS * (size_t)num_gpus + 1, sizeof *ranks);
    if (new == NULL || ranks == NULL) {
        free(new);
        free(ranks);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for channels");
    }
    new->num_gpus = num_gpus;
    for (int i = 0; i < WEFT__MAX_CHANNELS; i++) {
        new->channel[i].nets[0] = new->channel[i].nets[1] = -1;
        new->channel[i].ranks = ranks + (ptrdiff_t)i *num_gpus;
    }
    *channels = new;
    return WEFT_OK;
}

void weft__channels_free(struct weft__channels *channels)
{
    if (channels != NULL)
        free(channels->channel[0].ranks);
    free(channels);
}

void weft__channels_copy(struct weft__channels *to, const struct weft__channels *from)
{
    int32_t *ranks = to->channel[0].ranks;
    *to = *from;
    for (int i = 0; i < WEFT__MAX_CHANNELS; i++)
        to->channel[i].ranks = ranks + (ptrdiff_t)i * from->num_gpus;
    memcpy(ranks, from->channel[0].ranks,
           (size_t)from->num_channels * (size_t)from->num_gpus * sizeof *ranks);
}

int weft__channels_were_found(const struct weft__channels *channels)
{
    return channels->pattern == WEFT__PATTERN_NVLS || channels->bw_intra > WEFT__NO_GBPS;
}

double weft__channels_gbps(const struct weft__channels *channels)
{
    return (double)channels->bw_intra * channels->num_channels;
}

const char *weft__pattern_name(enum weft__pattern pattern)
{
    static const char *const names[] = {"",     "balanced tree", "split tree", "tree",
                                        "ring", "NVLS",          "collnet"};
    return names[pattern];
}
