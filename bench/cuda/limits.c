/* SPDX-License-Identifier: MIT */
/*
 * The best that the GPUs of this host can do, one process for all of them: the bounds that weft's
 * operations are compared with.
 *
 *     limits --sms 12,24 --tokens 4096 --rows 14336
 */
#include <stdlib.h>

#include "limit_copies.h"
#include "limit_rows.h"
#include "try.h"

static int run(struct gpus *gpus, const struct cuda_options *options)
{
    TRY(gpus_init(gpus, options->num_gpus));
    if (!gpus->has_bulk)
        fprintf(stderr, "No bulk copies on these GPUs: their kernels are left out\n");
    struct report report = {.output = options->output,
                            .num_ranks = gpus->num_gpus,
                            .num_topk = options->num_topk,
                            .num_experts = options->num_experts};
    if (options->measure != MEASURE_COPY)
        TRY(limit_rows(gpus, options, &report));
    if (options->measure == MEASURE_ALL || options->measure == MEASURE_COPY)
        TRY(limit_copies(gpus, options, &report));
    return 0;
}

int main(int argc, char **argv)
{
    struct cuda_options options;
    struct gpus gpus = {0};
    cuda_options_parse(&options, "What GPUs can do at best.", argc, argv);
    /* A kernel loaded late would wait for the gates of other GPUs, and they for it. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    const int result = run(&gpus, &options);
    gpus_destroy(&gpus);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
