/* SPDX-License-Identifier: MIT */
#include "ep_ll.h"

#include "ll_batch.h"
#include "try.h"

/* Each timed sequence combines or releases its result, so that it can be repeated. Combine alone
 * uses one result again and again, which is released at the end. */
struct operation {
    const char *name;
    int checked;
    int num_sent[2]; /* rows for each that dispatch sends: by dispatch, and by combine */
    int is_of_a_result_that_stays;
    int32_t num_parts;
    struct ll_part parts[LL_MOST_PARTS];
};

static const struct operation operations[] = {
    {"weft_ll_dispatch_release_us", LL_CHECK_ROWS, .num_sent = {1, 0}, .num_parts = 2,
     .parts = {{.operation = LL_DISPATCH}, {.operation = LL_RELEASE}}},
    {"weft_ll_combine_us", LL_CHECK_SUMS, .num_sent = {0, 1}, .is_of_a_result_that_stays = 1,
     .num_parts = 1, .parts = {{.operation = LL_COMBINE_KEEPING}}},
    {"weft_ll_layer_us", LL_CHECK_ROWS | LL_CHECK_SUMS, .num_sent = {1, 1}, .num_parts = 2,
     .parts = {{.operation = LL_DISPATCH}, {.operation = LL_COMBINE}}},
    {"weft_ll_layer_phases_us", LL_CHECK_ROWS | LL_CHECK_SUMS, .num_sent = {1, 1}, .num_parts = 4,
     .parts = {{LL_DISPATCH, WEFT_LL_SEND},
               {LL_DISPATCH, WEFT_LL_RECEIVE},
               {LL_COMBINE, WEFT_LL_SEND},
               {LL_COMBINE, WEFT_LL_RECEIVE}}}};
enum { NUM_OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

enum way { WAY_STREAM, WAY_GRAPH, NUM_WAYS };

static const char *const kernel_names[][NUM_WAYS] = {
    [WEFT_LL_BY_RANK] = {"stream, by rank", "graph, by rank"},
    [WEFT_LL_BY_EXPERT] = {"stream, by expert", "graph, by expert"}};

static struct measured describe(const struct ll_batch *batch, const struct operation *operation,
                                enum way way)
{
    return (struct measured){
        .name = operation->name,
        .kernel = kernel_names[batch->layout][way],
        .num_sms = batch->num_blocks,
        .num_tokens = batch->plan->num_tokens,
        .rows = batch->narrow_dtype == WEFT_DTYPE_NONE ? batch->options->formats[0].text : "fp8",
        .bytes = routing_bytes(batch->plan, operation->num_sent[0] *
                                                    (batch->narrow_bytes + batch->scales_bytes) +
                                                operation->num_sent[1] * batch->row_bytes)};
}

/* The result is checked of the very calls that are then timed, and again behind them. */
static int measure_calls(const struct ll_measuring *measuring, struct ll_batch *batch,
                         const struct operation *operation, struct calls *calls,
                         struct measured *measured)
{
    cudaStream_t stream = measuring->rank->cuda_stream;
    TRY(calls_enqueue(calls, stream));
    TRY(ll_batch_check(batch, operation->checked, &measured->num_wrong));
    TRY(timing_measure(measuring->timing, calls, &measured->us));
    return ll_batch_check(batch, operation->checked, &measured->num_wrong);
}

static int measure_operation(const struct ll_measuring *measuring, struct ll_batch *batch,
                             const struct operation *operation, enum way way, int64_t *num_wrong)
{
    struct ll_call call = {.batch = batch, .num_parts = operation->num_parts};
    struct ll_call begin = {batch, 1, {{.operation = LL_DISPATCH}}};
    struct ll_call end = {batch, 1, {{.operation = LL_RELEASE}}};
    struct calls calls = {.enqueue = ll_call_enqueue,
                          .argument = &call,
                          .num_calls = way == WAY_GRAPH ? measuring->calls_per_graph : 1};
    struct measured measured = describe(batch, operation, way);
    for (int32_t i = 0; i < operation->num_parts; i++)
        call.parts[i] = operation->parts[i];
    TRY(ll_batch_prepare_check(batch));
    if (operation->is_of_a_result_that_stays)
        TRY(ll_call_enqueue(&begin));
    int result = way == WAY_GRAPH ? calls_capture(&calls, measuring->rank->cuda_stream) : 0;
    if (result == 0)
        result = measure_calls(measuring, batch, operation, &calls, &measured);
    calls_destroy(&calls);
    TRY(result);
    if (operation->is_of_a_result_that_stays)
        TRY(ll_call_enqueue(&end));
    *num_wrong += measured.num_wrong;
    if (measuring->rank->rank == 0)
        report_print(measuring->report, &measured);
    return 0;
}

/* Combine is the same whatever dispatch has sent. */
static int is_wanted(const struct ll_batch *batch, const struct operation *operation)
{
    return batch->narrow_dtype == WEFT_DTYPE_NONE || (operation->checked & LL_CHECK_ROWS);
}

static int measure_ways(const struct ll_measuring *measuring, struct ll_batch *batch,
                        const struct operation *operation, int64_t *num_wrong)
{
    TRY(measure_operation(measuring, batch, operation, WAY_STREAM, num_wrong));
    return measure_operation(measuring, batch, operation, WAY_GRAPH, num_wrong);
}

static int measure_batch(const struct ll_measuring *measuring, struct ll_batch *batch,
                         int64_t *num_wrong)
{
    int result = ll_batch_open(batch);
    for (int i = 0; i < NUM_OPERATIONS && result == 0; i++)
        if (is_wanted(batch, &operations[i]))
            result = measure_ways(measuring, batch, &operations[i], num_wrong);
    if (result == 0)
        result = gpu_rank_wait((void *)measuring->rank);
    ll_batch_close(batch);
    return result;
}

/* Both layouts, with rows as they are, and in FP8 if they consist of whole groups. */
static int measure_forms(const struct ll_measuring *measuring, const struct plan *plan,
                         int32_t num_blocks, int64_t *num_wrong)
{
    static const weft_dtype narrow_dtypes[] = {WEFT_DTYPE_NONE, WEFT_FP8_E4M3};
    const int32_t row_bytes = measuring->options->formats[0].row_bytes[0];
    const int num_dtypes = row_bytes % (LL_GROUP_ELEMENTS * (int)sizeof(uint16_t)) == 0 ? 2 : 1;
    for (int i = 0; i < 2 * num_dtypes; i++) {
        struct ll_batch batch = {.options = measuring->options,
                                 .rank = measuring->rank,
                                 .plan = plan,
                                 .layout = (weft_ll_layout)(i % 2),
                                 .narrow_dtype = narrow_dtypes[i / 2],
                                 .num_blocks = num_blocks};
        TRY(measure_batch(measuring, &batch, num_wrong));
    }
    return 0;
}

int ll_measure(const struct ll_measuring *measuring, int32_t num_tokens, int32_t num_blocks_listed,
               int64_t *num_wrong)
{
    struct plan plan;
    int result = 0;
    TRY(routing_init(&plan, measuring->options, num_tokens, measuring->rank->num_ranks));
    for (int32_t i = 0; i < num_blocks_listed && result == 0; i++)
        result = measure_forms(measuring, &plan, (int32_t)measuring->options->num_blocks.values[i],
                               num_wrong);
    plan_destroy(&plan);
    return result;
}
