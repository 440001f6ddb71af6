/* SPDX-License-Identifier: MIT */
/* Backward passes through the handle of the forward pass: the gradient of dispatch is combine, that
 * of combine is dispatch. So the two are adjoint: <dispatch(x), y> = <x, combine(y)>, exactly where
 * all values are small integers. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"
#include "workload/rng.h"

enum { HIDDEN = 37 };

struct layer {
    struct ep_rank rank;
    int32_t num_tokens, num_rows, num_topk;
    struct ep_array recv_x, grad_recv_x;         /* float [num_rows][HIDDEN] */
    struct ep_array x, grad_x;                   /* float [num_tokens][HIDDEN] */
    struct ep_array recv_weights, recv_topk_idx; /* [num_rows][num_topk] */
    struct ep_array weights;                     /* float [num_tokens][num_topk] */
};

static int layer_open(struct layer *layer, struct ranks_context *context,
                      const struct ep_world *world)
{
    struct ep_rank *rank = &layer->rank;
    if (ep_rank_open(rank, context, world->spec.num_nodes, 1 << 20) || ep_rank_enter(rank, world) ||
        ep_route(rank))
        return 1;
    layer->num_tokens = ep_oracle_num_tokens(&world->problem, context->rank);
    layer->num_rows = world->received[context->rank].num_rows;
    layer->num_topk = world->spec.num_topk;
    const uint64_t received_bytes = (uint64_t)layer->num_rows * HIDDEN * sizeof(float);
    const uint64_t own_bytes = (uint64_t)layer->num_tokens * HIDDEN * sizeof(float);
    const uint64_t received_choices = (uint64_t)layer->num_rows * (uint64_t)layer->num_topk;
    const uint64_t own_choices = (uint64_t)layer->num_tokens * (uint64_t)layer->num_topk;
    return ep_array_alloc(rank, &layer->recv_x, EP_HEAP, received_bytes, 0) ||
           ep_array_alloc(rank, &layer->grad_recv_x, EP_HEAP, received_bytes, 0) ||
           ep_array_alloc(rank, &layer->recv_weights, EP_HEAP, received_choices * 4, 0) ||
           ep_array_alloc(rank, &layer->recv_topk_idx, EP_HEAP, received_choices * 4, 0) ||
           ep_array_alloc(rank, &layer->x, EP_INPUT, own_bytes, 0) ||
           ep_array_alloc(rank, &layer->grad_x, EP_OWN, own_bytes, 0) ||
           ep_array_alloc(rank, &layer->weights, EP_OWN, own_choices * 4, 0);
}

static int layer_close(struct layer *layer)
{
    struct ep_rank *rank = &layer->rank;
    return ep_array_check_and_free(rank, &layer->recv_x, "recv_x") ||
           ep_array_check_and_free(rank, &layer->grad_recv_x, "grad_recv_x") ||
           ep_array_check_and_free(rank, &layer->recv_weights, "recv_weights") ||
           ep_array_check_and_free(rank, &layer->recv_topk_idx, "recv_topk_idx") ||
           ep_array_free(rank, &layer->x) ||
           ep_array_check_and_free(rank, &layer->grad_x, "grad_x") ||
           ep_array_check_and_free(rank, &layer->weights, "weights") || ep_rank_leave(rank) ||
           ep_rank_close(rank);
}

static int dispatch(struct layer *layer, const struct ep_array *src, struct ep_array *dst)
{
    const struct ep_world *world = layer->rank.world;
    const weft_plane plane = {.size = sizeof(weft_plane),
                              .src = src->data,
                              .dst = dst->data,
                              .row_bytes = HIDDEN * sizeof(float)};
    struct ep_inputs inputs;
    if (ep_array_push(&layer->rank, src) || ep_rank_inputs(&layer->rank, &inputs))
        return 1;
    CHECK_OK(weft_ep_dispatch(
        layer->rank.handle,
        WEFT_ARGS(weft_ep_dispatch_args, .num_planes = 1, .planes = &plane,
                  .capacity = layer->num_rows, .index_type = world->spec.index_type,
                  .topk_idx = inputs.topk_idx, .topk_weights = inputs.topk_weights,
                  .recv_topk_idx = layer->recv_topk_idx.data,
                  .recv_topk_weights = layer->recv_weights.data),
        layer->rank.stream));
    CHECK_OK(weft_stream_synchronize(layer->rank.stream));
    return ep_array_pull(&layer->rank, dst);
}

static int combine(struct layer *layer, const struct ep_array *x, struct ep_array *out)
{
    if (ep_array_push(&layer->rank, x))
        return 1;
    CHECK_OK(weft_ep_combine(layer->rank.handle,
                             WEFT_ARGS(weft_ep_combine_args, .dtype = WEFT_FP32, .hidden = HIDDEN,
                                       .capacity = layer->num_rows, .x = x->data, .out = out->data,
                                       .topk_weights = layer->recv_weights.data,
                                       .out_topk_weights = layer->weights.data),
                             layer->rank.stream));
    CHECK_OK(weft_stream_synchronize(layer->rank.stream));
    return ep_array_pull(&layer->rank, out) || ep_array_pull(&layer->rank, &layer->weights);
}

static void fill(float *values, int64_t num_values, uint64_t seed)
{
    struct rng rng = {seed};
    for (int64_t i = 0; i < num_values; i++)
        values[i] = (float)rng_below(&rng, 17) - 8;
}

static double inner_product(const float *a, const float *b, int64_t num_values)
{
    double sum = 0;
    for (int64_t i = 0; i < num_values; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static int check_sums(struct ranks_context *context, weft_comm *comm, const double sums[2])
{
    double all[2 * RANKS_MAX];
    double forward = 0, backward = 0;
    CHECK_OK(weft_comm_host_all_gather(comm, sums, 2 * sizeof *sums, all));
    for (int32_t rank = 0; rank < context->num_ranks; rank++) {
        forward += all[2 * rank];
        backward += all[2 * rank + 1];
    }
    CHECK(forward == backward, "%.1f and %.1f", forward, backward);
    return 0;
}

static int adjoint(struct ranks_context *context, const struct ep_world *world)
{
    struct layer layer = {0};
    if (layer_open(&layer, context, world))
        return 1;
    const int64_t num_own = (int64_t)layer.num_tokens * HIDDEN;
    const int64_t num_received = (int64_t)layer.num_rows * HIDDEN;
    const uint64_t rank = (uint64_t)context->rank;
    fill(layer.x.host, num_own, 2 * rank);
    fill(layer.grad_recv_x.host, num_received, 2 * rank + 1);
    if (dispatch(&layer, &layer.x, &layer.recv_x) ||
        combine(&layer, &layer.grad_recv_x, &layer.grad_x))
        return 1;
    const double sums[2] = {inner_product(layer.recv_x.host, layer.grad_recv_x.host, num_received),
                            inner_product(layer.x.host, layer.grad_x.host, num_own)};
    return check_sums(context, layer.rank.comm, sums) || layer_close(&layer);
}

/* Combining the weights that dispatch delivered gives back those of the choices that went
 * anywhere, to the bit, and 0 for the others. */
static int weights_come_back(struct ranks_context *context, const struct ep_world *world)
{
    const float *sent = world->chosen[context->rank].topk_weights;
    struct layer layer = {0};
    if (layer_open(&layer, context, world))
        return 1;
    fill(layer.grad_recv_x.host, (int64_t)layer.num_rows * HIDDEN, 1);
    if (dispatch(&layer, &layer.x, &layer.recv_x) ||
        combine(&layer, &layer.grad_recv_x, &layer.grad_x))
        return 1;
    const float *weights = layer.weights.host;
    for (int32_t i = 0; i < layer.num_tokens * layer.num_topk; i++) {
        const struct ep_token token = {context->rank, i / layer.num_topk};
        const struct ep_choice choice =
            ep_oracle_choice(&world->problem, token, i % layer.num_topk);
        const float expected = choice.rank < 0 ? 0.0F : sent[i];
        CHECK(memcmp(&weights[i], &expected, sizeof expected) == 0, "weight %d is %g, expected %g",
              i, (double)weights[i], (double)expected);
    }
    return layer_close(&layer);
}

/* combine(dispatch(x)) = (number of ranks that had the token) * x, over and over. */
static int there_and_back(struct ranks_context *context, const struct ep_world *world)
{
    struct layer layer = {0};
    if (layer_open(&layer, context, world))
        return 1;
    for (uint64_t round = 0; round < 5; round++) {
        fill(layer.x.host, (int64_t)layer.num_tokens * HIDDEN, round);
        if (dispatch(&layer, &layer.x, &layer.recv_x) ||
            combine(&layer, &layer.recv_x, &layer.grad_x))
            return 1;
        const float *x = layer.x.host, *grad_x = layer.grad_x.host;
        for (int32_t i = 0; i < layer.num_tokens * HIDDEN; i++) {
            int32_t num_copies = 0;
            for (int32_t rank = 0; rank < context->num_ranks; rank++)
                num_copies += ep_oracle_goes_to(&world->problem,
                                                (struct ep_token){context->rank, i / HIDDEN}, rank);
            CHECK(grad_x[i] == (float)num_copies * x[i], "element %d", i);
        }
    }
    return layer_close(&layer);
}

typedef int (*layer_function)(struct ranks_context *context, const struct ep_world *world);

/* One function with every routing, in one communicator after another. */
struct routings {
    layer_function function;
    struct ep_world *worlds[EP_NUM_ROUTINGS];
};

static int run_routings(struct ranks_context *context)
{
    const struct routings *routings = context->argument;
    for (int routing = 0; routing < EP_NUM_ROUTINGS; routing++) {
        if (routings->function(context, routings->worlds[routing]))
            return 1;
        ranks_barrier(context);
    }
    return 0;
}

static void run_on(layer_function function, int32_t num_ranks, int32_t num_nodes)
{
    struct routings routings = {.function = function};
    for (int routing = 0; routing < EP_NUM_ROUTINGS; routing++) {
        const struct ep_case spec = {.seed = 60,
                                     .num_ranks = num_ranks,
                                     .num_nodes = num_nodes,
                                     .max_tokens = 15,
                                     .num_topk = 4,
                                     .num_experts = 11,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .routing = (enum ep_routing)routing,
                                     .placement = (enum ep_placement)(routing % 3)};
        routings.worlds[routing] = ep_world_create(&spec);
    }
    assert_int_equal(ranks_run(RANKS_THREADS, num_ranks, run_routings, &routings), 0);
    for (int routing = 0; routing < EP_NUM_ROUTINGS; routing++)
        ep_world_destroy(routings.worlds[routing]);
}

static void run(layer_function function)
{
    for (int32_t num_ranks = 1; num_ranks <= 7; num_ranks += 3)
        run_on(function, num_ranks, 1);
    if (tests_network_is_there("auto"))
        run_on(function, 6, 3);
}

TEST_CALL(dispatch_and_combine_are_adjoint, run(adjoint))
TEST_CALL(weights_round_trip, run(weights_come_back))
TEST_CALL(rows_round_trip, run(there_and_back))
