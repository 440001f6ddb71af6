/* SPDX-License-Identifier: MIT */
#include "topo/channels.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"

weft_result channels_create(int32_t num_gpus, struct channels **channels)
{
    struct channels *new = calloc(1, sizeof *new);
    int32_t *ranks = calloc((size_t)TOPO_MAX_CHANNELS * (size_t)num_gpus + 1, sizeof *ranks);
    if (new == NULL || ranks == NULL) {
        free(new);
        free(ranks);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for channels");
    }
    new->num_gpus = num_gpus;
    for (int i = 0; i < TOPO_MAX_CHANNELS; i++) {
        new->channel[i].nets[0] = new->channel[i].nets[1] = -1;
        new->channel[i].ranks = ranks + (ptrdiff_t)i *num_gpus;
    }
    *channels = new;
    return WEFT_OK;
}

void channels_free(struct channels *channels)
{
    if (channels != NULL)
        free(channels->channel[0].ranks);
    free(channels);
}

void channels_copy(struct channels *to, const struct channels *from)
{
    int32_t *ranks = to->channel[0].ranks;
    *to = *from;
    for (int i = 0; i < TOPO_MAX_CHANNELS; i++)
        to->channel[i].ranks = ranks + (ptrdiff_t)i * from->num_gpus;
    memcpy(ranks, from->channel[0].ranks,
           (size_t)from->num_channels * (size_t)from->num_gpus * sizeof *ranks);
}

int channels_were_found(const struct channels *channels)
{
    return channels->pattern == PATTERN_NVLS || channels->bw_intra > NO_GBPS;
}

const char *pattern_name(enum pattern pattern)
{
    static const char *const names[] = {[PATTERN_BALANCED_TREE] = "balanced tree",
                                        [PATTERN_TREE] = "tree",
                                        [PATTERN_RING] = "ring",
                                        [PATTERN_NVLS] = "NVLS"};
    return names[pattern];
}
