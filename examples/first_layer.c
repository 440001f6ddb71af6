/* SPDX-License-Identifier: MIT */
/* The smallest MoE layer, whose experts return their input. docs/tutorial.md explains it. Run it
 * with: weft run -n 4 -- first_layer */
#include <stdio.h>

#include "weft.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const weft_result result_ = (call);                                                        \
        if (result_ != WEFT_OK) {                                                                  \
            fprintf(stderr, "%s: %s\n", #call, weft_last_error());                                 \
            return result_;                                                                        \
        }                                                                                          \
    } while (0)

enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, EXPERTS = 16 };

static weft_result layer(weft_ep_handle *handle, const int32_t *topk_idx, const float *x,
                         float *rows, int32_t max_rows, float *out, weft_stream *stream)
{
    weft_ep_layout_args layout = {.size = sizeof layout,
                                  .num_tokens = TOKENS,
                                  .index_type = WEFT_INT32,
                                  .topk_idx = topk_idx};
    CHECK(weft_ep_layout(handle, &layout, stream)); /* which token goes to which rank */
    CHECK(weft_ep_notify(handle, stream));          /* and to which row there */

    weft_plane plane = {
        .size = sizeof plane, .src = x, .dst = rows, .row_bytes = HIDDEN * sizeof *x};
    weft_ep_dispatch_args dispatch = {
        .size = sizeof dispatch, .planes = &plane, .num_planes = 1, .capacity = max_rows};
    CHECK(weft_ep_dispatch(handle, &dispatch, stream)); /* each row is at the ranks that need it */

    /* Here your experts work on `rows`, on the same stream. */

    weft_ep_combine_args combine = {.size = sizeof combine,
                                    .x = rows,
                                    .out = out,
                                    .hidden = HIDDEN,
                                    .dtype = WEFT_FP32,
                                    .capacity = max_rows};
    return weft_ep_combine(handle, &combine, stream); /* the sum of each token's rows is back */
}

/* Memory of the machine, which may be a GPU, is not for the host: values go through arrays. */
static weft_result run(weft_comm *comm)
{
    const int32_t rank = weft_comm_rank(comm), max_rows = TOKENS * weft_comm_num_ranks(comm);
    float x[TOKENS][HIDDEN], sums[TOKENS][HIDDEN];
    int32_t ids[TOKENS][TOPK];
    for (int t = 0; t < TOKENS; t++) {
        ids[t][0] = (5 * rank + 3 * t) % EXPERTS;
        ids[t][1] = (ids[t][0] + 8) % EXPERTS;
        for (int h = 0; h < HIDDEN; h++)
            x[t][h] = (float)(t + 1);
    }
    void *tokens, *topk_idx, *out, *rows;
    CHECK(weft_memory_alloc(comm, sizeof x, &tokens));
    CHECK(weft_memory_alloc(comm, sizeof ids, &topk_idx));
    CHECK(weft_memory_alloc(comm, sizeof sums, &out));
    CHECK(weft_heap_alloc(comm, sizeof x[0] * (uint64_t)max_rows, &rows)); /* others write to it */
    CHECK(weft_memory_copy(comm, tokens, x, sizeof x));
    CHECK(weft_memory_copy(comm, topk_idx, ids, sizeof ids));

    weft_stream *stream;
    weft_ep *ep;
    weft_ep_handle *handle;
    CHECK(weft_stream_create(comm, &stream));
    const weft_ep_config experts = {.size = sizeof experts, .num_experts = EXPERTS};
    CHECK(weft_ep_create(comm, &experts, &ep));
    const weft_ep_handle_config batch = {
        .size = sizeof batch, .max_tokens = TOKENS, .num_topk = TOPK};
    CHECK(weft_ep_handle_create(ep, &batch, &handle));

    CHECK(layer(handle, topk_idx, tokens, rows, max_rows, out, stream));
    CHECK(weft_stream_synchronize(stream));
    CHECK(weft_memory_copy(comm, sums, out, sizeof sums));
    printf("rank %d: token 3 was %g and is %g\n", rank, x[3][0], sums[3][0]);
    return weft_stream_destroy(stream);
}

int main(void)
{
    weft_comm *comm;
    if (weft_comm_create_from_env(NULL, &comm) != WEFT_OK) {
        fprintf(stderr, "no communicator: %s\n", weft_last_error());
        return 1;
    }
    const weft_result result = run(comm);
    return weft_comm_destroy(comm) == WEFT_OK && result == WEFT_OK ? 0 : 1; /* ends all of it */
}
