/* SPDX-License-Identifier: MIT */
#include "batch.h"

#include <stdlib.h>

#include "workload/payload.h"
#include "workload/router.h"

enum { PLANE_X = 0, PLANE_DY = 1 };

static weft_result route(struct batch *batch, const struct shape *shape, int64_t first_token)
{
    struct router *router = router_create(&(struct router_config){.seed = shape->seed,
                                                                  .num_experts = shape->num_experts,
                                                                  .num_topk = shape->num_topk,
                                                                  .skew = shape->skew});
    if (router == NULL)
        return WEFT_ERROR_INVALID_ARGUMENT;
    router_route(router, first_token, batch->num_tokens, batch->topk_idx, batch->topk_weights);
    router_destroy(router);
    return WEFT_OK;
}

weft_result batch_init(struct batch *batch, const struct shape *shape, int64_t first_token,
                       int32_t num_tokens)
{
    const size_t hidden = (size_t)shape->hidden;
    const size_t rows = (size_t)num_tokens + 1; /* not 0 bytes, for which malloc may give NULL */
    const size_t topk = (size_t)shape->num_topk;
    *batch = (struct batch){.num_tokens = num_tokens,
                            .x = malloc(rows * hidden * sizeof(*batch->x)),
                            .dy = malloc(rows * hidden * sizeof(*batch->dy)),
                            .topk_idx = malloc(rows * topk * sizeof(*batch->topk_idx)),
                            .topk_weights = malloc(rows * topk * sizeof(*batch->topk_weights))};
    if (batch->x == NULL || batch->dy == NULL || batch->topk_idx == NULL ||
        batch->topk_weights == NULL) {
        batch_destroy(batch);
        return WEFT_ERROR_OUT_OF_MEMORY;
    }
    const struct payload payload = {.seed = shape->seed, .dtype = WEFT_BF16};
    const size_t row_bytes = hidden * sizeof(uint16_t);
    for (int32_t token = 0; token < num_tokens; token++) {
        const size_t offset = (size_t)token * hidden;
        payload_fill_row(&payload, first_token + token, PLANE_X, batch->x + offset, row_bytes);
        payload_fill_row(&payload, first_token + token, PLANE_DY, batch->dy + offset, row_bytes);
    }
    return route(batch, shape, first_token);
}

void batch_destroy(struct batch *batch)
{
    free(batch->x);
    free(batch->dy);
    free(batch->topk_idx);
    free(batch->topk_weights);
    *batch = (struct batch){0};
}
