/* SPDX-License-Identifier: MIT */
/* weft_rows_quantise and weft_rows_dequantise, against the oracle, and their arguments. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/memory.h"
#include "harness/ranks.h"
#include "workload/elements.h"
#include "workload/quantised.h"
#include "workload/rng.h"

enum { MAX_ROWS = 40, MAX_HIDDEN = 2048, MAX_GAP_BYTES = 40, GUARD = 0x5a, NUM_TRIALS = 150 };

/* What a rank has on its machine, and copies of it: what goes in, and what must come out. */
enum { SRC, DST, SCALES, NUM_BLOCKS };
static const size_t block_bytes[NUM_BLOCKS] = {MAX_ROWS * (MAX_HIDDEN * 4 + MAX_GAP_BYTES) + 64,
                                               MAX_ROWS *MAX_HIDDEN * 4 + 64,
                                               (MAX_ROWS * 4 + MAX_GAP_BYTES) * MAX_HIDDEN + 64};

struct actor {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    char *blocks[NUM_BLOCKS];
    char *contents[NUM_BLOCKS];
    char *expected[NUM_BLOCKS];
};

static int open_actor(struct ranks_context *context, struct actor *actor)
{
    actor->context = context;
    actor->comm = ranks_comm(context, NULL);
    actor->stream = ranks_stream(context);
    for (int i = 0; i < NUM_BLOCKS; i++) {
        void *block;
        CHECK_OK(weft_memory_alloc(actor->comm, block_bytes[i], &block));
        actor->blocks[i] = block;
        actor->contents[i] = tests_alloc(block_bytes[i]);
        actor->expected[i] = tests_alloc(block_bytes[i]);
    }
    return 0;
}

static int close_actor(struct actor *actor)
{
    for (int i = 0; i < NUM_BLOCKS; i++) {
        tests_free(actor->expected[i]);
        tests_free(actor->contents[i]);
    }
    return 0;
}

/* ---------------------------------------------------------------- rows that are drawn */

/* Rows and where they are: offsets in their blocks. */
struct rows {
    weft_rows_args args;
    struct quantised_form form;
    size_t offsets[NUM_BLOCKS];
    size_t src_row_bytes, dst_row_bytes, scales_row_bytes; /* from one row to the next */
};

static size_t any_offset(struct rng *rng)
{
    return rng_below(rng, 2) == 0 ? 0 : rng_below(rng, 32);
}

static void draw_form(struct rows *rows, struct rng *rng)
{
    static const int64_t groups[] = {0, 1, 4, 32, 48, 128, 512};
    weft_rows_args *args = &rows->args;
    *args = (weft_rows_args)WEFT_INIT(weft_rows_args);
    args->dtype = (weft_dtype)(WEFT_BF16 + (int)rng_below(rng, 3));
    args->quantisation.dtype = rng_below(rng, 2) == 0 ? WEFT_FP8_E4M3 : WEFT_INT8;
    args->quantisation.scale = (weft_scale_kind)rng_below(rng, WEFT_SCALE_UE8M0 + 1);
    args->num_rows = (int32_t)rng_below(rng, MAX_ROWS + 1);
    args->quantisation.group_elements = groups[rng_below(rng, sizeof groups / sizeof *groups)];
    const int64_t group =
        args->quantisation.group_elements == 0 ? 1 : args->quantisation.group_elements;
    args->hidden = group * (1 + rng_below(rng, (uint32_t)(MAX_HIDDEN / group)));
    if (rng_below(rng, 2) == 0)
        args->scale_column_bytes = 4 * ((uint64_t)args->num_rows + 1 + rng_below(rng, 8));
}

/* Of quantising; of the way back source and destination change places. */
static void place_rows(struct rows *rows, int is_back, struct rng *rng)
{
    weft_rows_args *args = &rows->args;
    const int64_t group =
        args->quantisation.group_elements == 0 ? args->hidden : args->quantisation.group_elements;
    const size_t num_groups = (size_t)(args->hidden / group);
    const size_t wide_bytes = (size_t)args->hidden * dtype_bytes(args->dtype),
                 narrow_bytes = (size_t)args->hidden;
    const int is_by_column = args->scale_column_bytes != 0;
    rows->form = (struct quantised_form){.wide = args->dtype,
                                         .narrow = args->quantisation.dtype,
                                         .scale = args->quantisation.scale,
                                         .group_elements = group,
                                         .word_stride =
                                             is_by_column ? (int64_t)args->scale_column_bytes : 4};
    rows->src_row_bytes = is_back ? narrow_bytes : wide_bytes;
    rows->dst_row_bytes = is_back ? wide_bytes : narrow_bytes;
    rows->scales_row_bytes = is_by_column                                   ? 4
                             : args->quantisation.scale == WEFT_SCALE_UE8M0 ? num_groups
                                                                            : 4 * num_groups;
    if (rng_below(rng, 2) == 0) {
        rows->src_row_bytes += rng_below(rng, MAX_GAP_BYTES);
        args->src_stride_bytes = rows->src_row_bytes;
    }
    for (int i = 0; i < NUM_BLOCKS; i++)
        rows->offsets[i] = any_offset(rng);
}

static void point_to(struct rows *rows, const struct actor *actor)
{
    rows->args.src = actor->blocks[SRC] + rows->offsets[SRC];
    rows->args.dst = actor->blocks[DST] + rows->offsets[DST];
    rows->args.scales = actor->blocks[SCALES] + rows->offsets[SCALES];
}

static void fill_wide_rows(const struct rows *rows, struct actor *actor, uint64_t seed)
{
    const struct element_source source = {seed, rows->args.dtype,
                                          seed % 2 == 0 ? ELEMENTS_BITS : ELEMENTS_NUMBERS, NULL};
    for (int64_t row = 0; row < rows->args.num_rows; row++)
        elements_fill(&source, row, 0, (uint64_t)rows->args.hidden,
                      actor->contents[SRC] + rows->offsets[SRC] +
                          (size_t)row * rows->src_row_bytes);
}

static void expect_quantised(const struct rows *rows, struct actor *actor)
{
    for (int64_t row = 0; row < rows->args.num_rows; row++) {
        const size_t i = (size_t)row;
        quantised_make_row(
            &rows->form, actor->contents[SRC] + rows->offsets[SRC] + i * rows->src_row_bytes,
            rows->args.hidden, actor->expected[DST] + rows->offsets[DST] + i * rows->dst_row_bytes,
            actor->expected[SCALES] + rows->offsets[SCALES] + i * rows->scales_row_bytes);
    }
}

static void expect_dequantised(const struct rows *rows, struct actor *actor)
{
    for (int64_t row = 0; row < rows->args.num_rows; row++) {
        const size_t i = (size_t)row;
        for (int64_t k = 0; k < rows->args.hidden; k++)
            element_store(
                rows->form.wide,
                actor->expected[DST] + rows->offsets[DST] + i * rows->dst_row_bytes, k,
                quantised_number(
                    &rows->form,
                    actor->contents[SRC] + rows->offsets[SRC] + i * rows->src_row_bytes,
                    actor->contents[SCALES] + rows->offsets[SCALES] + i * rows->scales_row_bytes,
                    k));
    }
}

/* ---------------------------------------------------------------- runs */

static int put_contents(struct actor *actor)
{
    for (int i = 0; i < NUM_BLOCKS; i++) {
        memcpy(actor->expected[i], actor->contents[i], block_bytes[i]);
        CHECK_OK(
            weft_memory_copy(actor->comm, actor->blocks[i], actor->contents[i], block_bytes[i]));
    }
    return 0;
}

/* All blocks to the last byte. */
static int check_blocks(struct actor *actor, const struct rows *rows, int trial)
{
    static const char *const names[NUM_BLOCKS] = {"src", "dst", "scales"};
    CHECK_OK(weft_stream_synchronize(actor->stream));
    for (int b = 0; b < NUM_BLOCKS; b++) {
        CHECK_OK(
            weft_memory_copy(actor->comm, actor->contents[b], actor->blocks[b], block_bytes[b]));
        const int is_same = memcmp(actor->contents[b], actor->expected[b], block_bytes[b]) == 0;
        size_t i = is_same ? block_bytes[b] : 0;
        while (i < block_bytes[b] && actor->contents[b][i] == actor->expected[b][i])
            i++;
        CHECK(i == block_bytes[b],
              "trial %d, %lld rows of %lld in groups of %lld, dtype %d, narrow %d, scale %d: "
              "byte %zu of %s",
              trial, (long long)rows->args.num_rows, (long long)rows->args.hidden,
              (long long)rows->args.quantisation.group_elements, rows->args.dtype,
              rows->args.quantisation.dtype, rows->args.quantisation.scale, i, names[b]);
    }
    return 0;
}

static int quantise(struct actor *actor, struct rows *rows, int trial, struct rng *rng)
{
    for (int i = 0; i < NUM_BLOCKS; i++)
        memset(actor->contents[i], GUARD, block_bytes[i]);
    draw_form(rows, rng);
    place_rows(rows, 0, rng);
    point_to(rows, actor);
    fill_wide_rows(rows, actor, (uint64_t)trial);
    if (put_contents(actor))
        return 1;
    expect_quantised(rows, actor);
    CHECK_OK(weft_rows_quantise(actor->comm, &rows->args, actor->stream));
    return check_blocks(actor, rows, trial);
}

/* What has been quantised, at other places. */
static int dequantise(struct actor *actor, struct rows *rows, int trial, struct rng *rng)
{
    const struct rows before = *rows;
    const char *codes = actor->contents[DST] + before.offsets[DST];
    char *scales = actor->contents[SCALES];
    rows->args.src_stride_bytes = 0;
    place_rows(rows, 1, rng);
    memset(actor->contents[SRC], GUARD, block_bytes[SRC]);
    for (size_t row = 0; row < (size_t)rows->args.num_rows; row++)
        memcpy(actor->contents[SRC] + rows->offsets[SRC] + row * rows->src_row_bytes,
               codes + row * before.dst_row_bytes, before.dst_row_bytes);
    memmove(scales + rows->offsets[SCALES], scales + before.offsets[SCALES],
            block_bytes[SCALES] - 64);
    memset(actor->contents[DST], GUARD, block_bytes[DST]);
    point_to(rows, actor);
    if (put_contents(actor))
        return 1;
    expect_dequantised(rows, actor);
    CHECK_OK(weft_rows_dequantise(actor->comm, &rows->args, actor->stream));
    return check_blocks(actor, rows, trial);
}

TEST_ON_RANKS(rows_there_and_back, RANKS_THREADS, 1)
{
    struct actor actor;
    struct rows rows;
    struct rng rng = {.state = 77};
    if (open_actor(context, &actor))
        return 1;
    for (int trial = 0; trial < NUM_TRIALS; trial++) {
        if (quantise(&actor, &rows, trial, &rng) || dequantise(&actor, &rows, trial, &rng))
            return 1;
    }
    return close_actor(&actor);
}

/* ---------------------------------------------------------------- arguments */

static weft_rows_args good_args(const struct actor *actor)
{
    weft_rows_args args = WEFT_INIT(weft_rows_args);
    args.src = actor->blocks[SRC];
    args.dst = actor->blocks[DST];
    args.scales = actor->blocks[SCALES];
    args.num_rows = 3;
    args.hidden = 256;
    args.quantisation.group_elements = 128;
    args.dtype = WEFT_BF16;
    args.quantisation.dtype = WEFT_FP8_E4M3;
    return args;
}

/* Both functions name what is wrong. */
#define REFUSED(field, wrong, text)                                                                \
    do {                                                                                           \
        weft_rows_args args_ = good_args(&actor);                                                  \
        args_.field = wrong;                                                                       \
        CHECK_ERROR(weft_rows_quantise(actor.comm, &args_, actor.stream),                          \
                    WEFT_ERROR_INVALID_ARGUMENT, text);                                            \
        CHECK_ERROR(weft_rows_dequantise(actor.comm, &args_, actor.stream),                        \
                    WEFT_ERROR_INVALID_ARGUMENT, text);                                            \
    } while (0)

TEST_ON_RANKS(refusals_name_the_number, RANKS_THREADS, 1)
{
    struct actor actor;
    if (open_actor(context, &actor))
        return 1;
    REFUSED(num_rows, -1, "num_rows is -1, allowed are 0..");
    REFUSED(hidden, 0, "hidden is 0, allowed are 1..");
    REFUSED(hidden, INT32_MAX, "hidden is 2147483647, allowed are 1..1073741823");
    REFUSED(quantisation.group_elements, 100,
            "quantisation.group_elements is 100, must divide hidden, which is 256");
    REFUSED(quantisation.group_elements, 257,
            "quantisation.group_elements is 257, allowed are 0..256");
    REFUSED(dtype, WEFT_FP64, "dtype is WEFT_FP64 (6), allowed are WEFT_BF16 (3), ");
    REFUSED(quantisation.dtype, WEFT_UINT8, "quantisation.dtype is WEFT_UINT8 (7), allowed are ");
    REFUSED(quantisation.scale, (weft_scale_kind)3,
            "quantisation.scale is 3, allowed are WEFT_SCALE_FP32 (0), ");
    REFUSED(src_stride_bytes, 255, "src_stride_bytes is 255, allowed are 0 and ");
    REFUSED(scale_column_bytes, 8, "scale_column_bytes is 8, allowed are 0 and multiples of 4");
    REFUSED(scale_column_bytes, 14, "from 12 on");
    return close_actor(&actor);
}

TEST_ON_RANKS(memory_may_not_overlap, RANKS_THREADS, 1)
{
    struct actor actor;
    if (open_actor(context, &actor))
        return 1;
    weft_rows_args args = good_args(&actor);
    REFUSED(dst, actor.blocks[SRC] + 8, "overlap");
    args.scales = actor.blocks[DST] + 3 * 256 - 1;
    CHECK_ERROR(weft_rows_quantise(actor.comm, &args, actor.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "overlap");
    args.num_rows = 0;
    args.src = NULL;
    args.dst = args.scales = NULL;
    CHECK_OK(weft_rows_quantise(actor.comm, &args, actor.stream));
    return close_actor(&actor);
}
