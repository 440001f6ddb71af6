/* SPDX-License-Identifier: MIT */
#include "api_targets.h"

static const struct fuzz_target *targets[128];
static int32_t num_targets;

int32_t fuzz_num_targets(void)
{
    return num_targets;
}

const struct fuzz_target *fuzz_target(int32_t idx)
{
    return targets[idx];
}

void fuzz_register(const struct fuzz_target *target)
{
    targets[num_targets++] = target;
}

void fuzz_fill_output(struct fuzz_arguments *arguments, struct rng *rng)
{
    const size_t size = sizeof arguments->result_memory;
    (void)rng;
    memcpy(arguments->result_memory, &size, sizeof size);
    arguments->out = arguments->result_memory;
}

weft_result fuzz_wait(struct fuzz_arguments *arguments)
{
    return weft_stream_synchronize(arguments->own_stream);
}
