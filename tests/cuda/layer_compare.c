/* SPDX-License-Identifier: MIT */
#include "cuda/layer.h"

#include "harness/memory.h"

static const char *const array_names[LAYER_NUM_ARRAYS] = {
    "topk_idx",      "topk_weights",     "rows",          "bias",          "num_tokens_per_rank",
    "out",           "out_topk_weights", "received rows", "recv_topk_idx", "recv_topk_weights",
    "recv_src_token"};

struct part {
    const void *got, *expected;
    uint64_t bytes;
    const char *name;
};

static int compare_part(struct layer *got, struct layer *expected, struct part part)
{
    unsigned char *a = tests_alloc(part.bytes), *b = tests_alloc(part.bytes);
    uint64_t i = 0;
    weft_result result = weft_memory_copy(got->comm, a, part.got, part.bytes);
    if (result == WEFT_OK)
        result = weft_memory_copy(expected->comm, b, part.expected, part.bytes);
    while (i < part.bytes && a[i] == b[i])
        i++;
    const unsigned of_got = i < part.bytes ? a[i] : 0, of_cpu = i < part.bytes ? b[i] : 0;
    tests_free(a);
    tests_free(b);
    CHECK_OK(result);
    CHECK(i == part.bytes, "byte %llu of %llu of %s is 0x%02x, on machine cpu 0x%02x",
          (unsigned long long)i, (unsigned long long)part.bytes, part.name, of_got, of_cpu);
    return 0;
}

static int compare_array(struct layer *got, struct layer *expected, enum layer_array array,
                         uint64_t bytes)
{
    const struct part part = {got->arrays[array], expected->arrays[array], bytes,
                              array_names[array]};
    return compare_part(got, expected, part);
}

static int compare_counts(struct layer *got, struct layer *expected)
{
    const int32_t rank = got->context->rank, num_ranks = got->context->num_ranks;
    const int32_t num_experts = weft_ep_num_local_experts(got->ep, rank);
    weft_ep_device_counts a = WEFT_INIT(weft_ep_device_counts),
                          b = WEFT_INIT(weft_ep_device_counts);
    CHECK_OK(weft_ep_query_device_counts(got->handle, &a));
    CHECK_OK(weft_ep_query_device_counts(expected->handle, &b));
    const struct part parts[] = {
        {a.num_recv_tokens, b.num_recv_tokens, 4, "num_recv_tokens"},
        {a.num_recv_per_rank, b.num_recv_per_rank, 4 * (uint64_t)num_ranks, "num_recv_per_rank"},
        {a.num_recv_per_expert, b.num_recv_per_expert, 4 * (uint64_t)num_experts,
         "num_recv_per_expert"},
    };
    return compare_part(got, expected, parts[0]) || compare_part(got, expected, parts[1]) ||
           compare_part(got, expected, parts[2]);
}

static int compare_dropped(struct layer *got, struct layer *expected)
{
    int32_t dropped = -1, expected_dropped = -1;
    const weft_result result = weft_ep_check(got->handle, &dropped);
    const weft_result expected_result = weft_ep_check(expected->handle, &expected_dropped);
    CHECK(result == expected_result && dropped == expected_dropped,
          "weft_ep_check gave \"%s\" with %d rows dropped, on machine cpu \"%s\" with %d",
          weft_result_string(result), dropped, weft_result_string(expected_result),
          expected_dropped);
    return 0;
}

int layer_compare(struct layer *got, struct layer *expected)
{
    const uint64_t row_bytes = (uint64_t)got->shape.hidden * 2;
    const uint64_t num_tokens = (uint64_t)got->num_tokens;
    weft_ep_device_counts counts = WEFT_INIT(weft_ep_device_counts);
    int32_t num_rows = 0;
    if (compare_counts(got, expected))
        return 1;
    CHECK_OK(weft_ep_query_device_counts(expected->handle, &counts));
    CHECK_OK(weft_memory_copy(expected->comm, &num_rows, counts.num_recv_tokens, 4));
    const uint64_t num_delivered =
        (uint64_t)(num_rows < got->shape.capacity ? num_rows : got->shape.capacity);
    /* Ids and weights are compared to their ends, where ids are -1 and weights untouched. */
    return compare_array(got, expected, LAYER_TOKENS_PER_RANK,
                         layer_array_bytes(got, LAYER_TOKENS_PER_RANK)) ||
           compare_array(got, expected, LAYER_RECV_ROWS, num_delivered * row_bytes) ||
           compare_array(got, expected, LAYER_RECV_TOPK_IDX,
                         layer_array_bytes(got, LAYER_RECV_TOPK_IDX)) ||
           compare_array(got, expected, LAYER_RECV_WEIGHTS,
                         layer_array_bytes(got, LAYER_RECV_WEIGHTS)) ||
           compare_array(got, expected, LAYER_RECV_SRC_TOKEN, num_delivered * 4) ||
           compare_array(got, expected, LAYER_OUT, num_tokens * row_bytes) ||
           compare_array(got, expected, LAYER_OUT_WEIGHTS,
                         num_tokens * 4 * (uint64_t)got->shape.num_topk) ||
           compare_dropped(got, expected);
}
