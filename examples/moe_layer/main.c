/* SPDX-License-Identifier: MIT */
/*
 * A mixture-of-experts layer, forward and backward, with the experts spread over all ranks; rank 0
 * then computes the same for all tokens alone and compares every bit. For the ranks of one node.
 *
 *     weft run -n 8 -- moe_layer
 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "compare.h"
#include "expert.h"
#include "layer.h"
#include "try.h"

struct demo {
    struct shape shape;
    int32_t rank;
    weft_comm *comm;
    struct layer *layer;
    struct batch batch;
    struct results results;
};

static weft_result alloc_results(struct demo *demo)
{
    const struct shape *shape = &demo->shape;
    const size_t num_tokens = (size_t)shape->num_tokens;
    const size_t row_bytes = (size_t)shape->hidden * sizeof(uint16_t);
    const size_t topk_bytes = (size_t)shape->num_topk * sizeof(float);
    const size_t max_experts =
        (size_t)((shape->num_experts + shape->num_ranks - 1) / shape->num_ranks);
    const size_t dparameters_bytes = max_experts * expert_num_parameters(shape) * sizeof(float);
    struct results *results = &demo->results;
    TRY(weft_heap_alloc(demo->comm, num_tokens * row_bytes, (void **)&results->y));
    TRY(weft_heap_alloc(demo->comm, num_tokens * row_bytes, (void **)&results->dx));
    TRY(weft_heap_alloc(demo->comm, num_tokens * topk_bytes, (void **)&results->dweights));
    TRY(weft_heap_alloc(demo->comm, dparameters_bytes, (void **)&results->dparameters));
    TRY(weft_heap_alloc(demo->comm, sizeof(int32_t), (void **)&results->num_rows));
    memset(results->dparameters, 0, dparameters_bytes);
    return WEFT_OK;
}

static weft_result run_layer(struct demo *demo)
{
    const struct shape *shape = &demo->shape;
    TRY(alloc_results(demo));
    TRY(batch_init(&demo->batch, shape, shape_first_token(shape, demo->rank),
                   shape_num_tokens(shape, demo->rank)));
    TRY(layer_create(demo->comm, shape, demo->results.dparameters, &demo->layer));
    TRY(layer_forward(demo->layer, &demo->batch, demo->results.y));
    TRY(layer_backward(demo->layer, demo->batch.dy, demo->results.dx, demo->results.dweights));
    *demo->results.num_rows = layer_num_rows(demo->layer);
    return WEFT_OK;
}

/* Rank 0 reads the others' results where they are, and the dense process sums as the ranks of one node do. */
static int is_one_node(const weft_comm *comm)
{
    weft_team_info node = WEFT_INIT(weft_team_info);
    return weft_team_query(comm, WEFT_TEAM_LOCAL, &node) == WEFT_OK && node.num_teams == 1;
}

static weft_result run_demo(struct demo *demo, enum verdict *verdict)
{
    TRY(run_layer(demo));
    TRY(weft_comm_host_barrier(demo->comm)); /* the results of all ranks are complete */
    if (demo->rank == 0)
        TRY(compare_with_reference(demo->comm, &demo->shape, &demo->results, verdict));
    return weft_comm_host_barrier(demo->comm); /* and are no longer read */
}

static void demo_destroy(struct demo *demo)
{
    batch_destroy(&demo->batch);
    layer_destroy(demo->layer);
    weft_heap_free(demo->comm, demo->results.y);
    weft_heap_free(demo->comm, demo->results.dx);
    weft_heap_free(demo->comm, demo->results.dweights);
    weft_heap_free(demo->comm, demo->results.dparameters);
    weft_heap_free(demo->comm, demo->results.num_rows);
    weft_comm_destroy(demo->comm);
}

static const struct argp_option options[] = {
    {.name = "tokens", .key = 't', .arg = "N", .doc = "Tokens per rank (64)"},
    {.name = "hidden", .key = 'h', .arg = "N", .doc = "Elements per token (64)"},
    {.name = "ffn", .key = 'f', .arg = "N", .doc = "Inner width of an expert (128)"},
    {.name = "experts", .key = 'e', .arg = "N", .doc = "Experts in all (32)"},
    {.name = "topk", .key = 'k', .arg = "N", .doc = "Experts that a token chooses (4)"},
    {.name = "seed", .key = 's', .arg = "N", .doc = "Of tokens, gate and experts (1)"},
    {0}};

static int32_t parse_number(struct argp_state *state, const char *text, long max)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > max)
        argp_error(state, "'%s' is not a number from 1 to %ld", text, max);
    return (int32_t)value;
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct shape *shape = state->input;
    const long max_size = 1 << 20;
    switch (key) {
    case 't':
        shape->num_tokens = parse_number(state, text, max_size);
        return 0;
    case 'h':
        shape->hidden = parse_number(state, text, max_size);
        return 0;
    case 'f':
        shape->ffn = parse_number(state, text, max_size);
        return 0;
    case 'e':
        shape->num_experts = parse_number(state, text, max_size);
        return 0;
    case 'k':
        shape->num_topk = parse_number(state, text, WEFT_MAX_TOPK);
        return 0;
    case 's':
        shape->seed = (uint64_t)parse_number(state, text, INT_MAX);
        return 0;
    case ARGP_KEY_END:
        if (shape->num_topk > shape->num_experts)
            argp_error(state, "--topk %d is more than --experts %d", shape->num_topk,
                       shape->num_experts);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .doc = "A mixture-of-experts layer, forward and backward, checked against one process."};
    struct demo demo = {.shape = {.num_tokens = 64,
                                  .hidden = 64,
                                  .ffn = 128,
                                  .num_experts = 32,
                                  .num_topk = 4,
                                  .seed = 1,
                                  .skew = 0.5f}};
    argp_parse(&argp, argc, argv, 0, NULL, &demo.shape);
    /* The experts are computed on the host, in rows that operations read and write: so those run there,
     * too, whatever GPUs there are. */
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.machine = WEFT_MACHINE_CPU;
    if (weft_comm_create_from_env(&config, &demo.comm) != WEFT_OK) {
        fprintf(stderr, "moe_layer: %s\n", weft_last_error());
        return EXIT_FAILURE;
    }
    demo.rank = weft_comm_rank(demo.comm);
    if (!is_one_node(demo.comm)) {
        if (demo.rank == 0)
            fprintf(stderr, "moe_layer: its ranks must be on one node\n");
        weft_comm_destroy(demo.comm);
        return EXIT_FAILURE;
    }
    demo.shape.num_ranks = weft_comm_num_ranks(demo.comm);

    enum verdict verdict = VERDICT_IDENTICAL;
    const weft_result result = run_demo(&demo, &verdict);
    if (result != WEFT_OK)
        fprintf(stderr, "moe_layer: %s: %s\n", weft_result_string(result), weft_last_error());
    demo_destroy(&demo);
    return result == WEFT_OK && verdict == VERDICT_IDENTICAL ? EXIT_SUCCESS : EXIT_FAILURE;
}
