/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/host/error.h"
#include "topo/complete.h"
#include "topo/file.h"
#include "topo/gpus.h"
#include "topo_job.h"

enum { MAX_GPUS = 64 };

/* ------------------------------------------------------------------ what it is made of */

static weft_result detect(struct topo_view *view)
{
    struct topo_gpu_facts *gpus = calloc(MAX_GPUS, sizeof *gpus);
    if (gpus == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for GPUs");
    const int32_t num_gpus = topo_find_gpus(gpus, MAX_GPUS);
    const weft_result result =
        topo_detect(topo_file_to_read(), gpus, num_gpus, &weft__sysfs_of_host, &view->system);
    free(gpus);
    return result;
}

weft_result topo_machine_read(const char *file, struct topo_view *view)
{
    snprintf(view->name, sizeof view->name, "%s", file != NULL ? file : "this machine");
    return file != NULL ? topo_read(file, &view->system) : detect(view);
}

/* In the order that they have. */
static weft_result number_gpus(struct topo_view *view, int32_t first_rank)
{
    const int32_t num_gpus = topo_count(view->topo, TOPO_GPU);
    int32_t least = INT32_MAX;
    for (int32_t i = 0; i < num_gpus; i++) {
        const int32_t rank = topo_at(view->topo, TOPO_GPU, i)->gpu.rank;
        least = rank < least ? rank : least;
    }
    for (int32_t i = 0; i < num_gpus; i++) {
        struct topo_node *gpu = topo_at(view->topo, TOPO_GPU, i);
        if (gpu->gpu.rank - least >= num_gpus)
            return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                               "%s: ranks of its %" PRId32
                               " GPUs must follow each other, where it is one of several machines: "
                               "the least is %" PRId32 ", another %" PRId32,
                               view->name, num_gpus, least, gpu->gpu.rank);
        gpu->gpu.rank += first_rank - least;
    }
    return WEFT_OK;
}

weft_result topo_machine_build(const struct topo_options *options, int32_t first_rank,
                               struct topo_view *view)
{
    const struct topo_constants *constants;
    WEFT__TRY(topo_constants_of(options->nccl_version, &constants));
    WEFT__TRY(topo_build(view->system, constants, &view->topo));
    if (first_rank >= 0)
        WEFT__TRY(number_gpus(view, first_rank));
    return topo_compute_paths(view->topo, options->p2p_level - 1);
}

/* ------------------------------------------------------------------ channels */

static enum topo_reach reach_of(const struct topo_view *view)
{
    return view->num_nodes > 1 ? TOPO_SEVERAL_NODES : TOPO_ONE_NODE;
}

weft_result topo_machine_search(struct topo_view *view)
{
    return topo_count(view->topo, TOPO_GPU) > 0
               ? search_all(view->topo, reach_of(view), &view->sets)
               : WEFT_OK;
}
