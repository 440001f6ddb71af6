/* SPDX-License-Identifier: MIT */
/* Row operations on a GPU: the same rows as in unit/test_row*.c give the same bits. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/launch_params.h"
#include "row_sums.h"
#include "unit/mixed_rows.h"
#include "unit/quantised_rows.h"
#include "unit/reduced_rows.h"
#include "unit/weighted_rows.h"

_Static_assert((int)ROW_SUMS_MAX_SRCS >= (int)MIXED_MAX_SRCS &&
                   (int)ROW_SUMS_MAX_SRCS >= (int)MAX_SRCS &&
                   (int)ROW_SUMS_MAX_DSTS >= (int)MAX_DSTS &&
                   (int)ROW_SUMS_MAX_DSTS >= (int)QUANTISED_MAX_DSTS,
               "rows that are drawn fit the arguments");

extern const unsigned long long weft__fatbin_row_sums[];

enum program { SUM, REDUCTION, COPYING, WEIGHTED_SUM, QUANTISING, DEQUANTISING, NUM_PROGRAMS };

struct gpu {
    CUfunction functions[NUM_PROGRAMS];
    CUdeviceptr memory; /* as large as the rows of a trial */
};

static struct gpu gpu;
static struct weighted_rows weighted;
static struct mixed_rows *const rows = &weighted.rows;
static struct rows reduced;
static struct quantised_rows quantised;

static void check_call(CUresult result, const char *call, int line)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return;
    (void)weft__cu.get_error_name(result, &name);
    fail_msg("line %d: %s gave %s", line, call, name != NULL ? name : "an unknown error");
}
#define CHECK_CALL(call) check_call((call), #call, __LINE__)

static int open_gpu(void **state)
{
    (void)state;
    CUdevice device;
    CUcontext context;
    CUlibrary library;
    CUkernel kernel;
    static const char *const names[] = {"weft__cuda_row_sums",       "weft__cuda_row_reduction",
                                        "weft__cuda_row_copying",    "weft__cuda_row_weighted",
                                        "weft__cuda_row_quantising", "weft__cuda_row_dequantising"};
    assert_non_null(weft__cuda_load());
    CHECK_CALL(weft__cu.device_get(&device, 0));
    CHECK_CALL(weft__cu.device_primary_ctx_retain(&context, device));
    CHECK_CALL(weft__cu.ctx_push_current(context));
    CHECK_CALL(
        weft__cu.library_load_data(&library, weft__fatbin_row_sums, NULL, NULL, 0, NULL, NULL, 0));
    for (int i = 0; i < NUM_PROGRAMS; i++) {
        CHECK_CALL(weft__cu.library_get_kernel(&kernel, library, names[i]));
        CHECK_CALL(weft__cu.kernel_get_function(&gpu.functions[i], kernel));
    }
    CHECK_CALL(
        weft__cu.mem_alloc(&gpu.memory, sizeof weighted + sizeof reduced + sizeof quantised));
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    CHECK_CALL(weft__cu.mem_free(gpu.memory));
    return 0;
}

/* What begins at `base` lies at the beginning of the GPU's memory: where a byte of it is there;
 * NULL for NULL. */
static void *on_gpu(const void *base, const void *byte)
{
    const uint64_t offset = (uint64_t)((const char *)byte - (const char *)base);
    return byte == NULL ? NULL : (void *)(uintptr_t)(gpu.memory + offset);
}

static void copy_to_gpu(const void *base, size_t bytes)
{
    CHECK_CALL(weft__cu.memcpy_async(gpu.memory, (CUdeviceptr)(uintptr_t)base, bytes, NULL));
}

static void copy_to_host(const void *base, void *part, size_t bytes)
{
    CHECK_CALL(weft__cu.memcpy_async((CUdeviceptr)(uintptr_t)part,
                                     (CUdeviceptr)(uintptr_t)on_gpu(base, part), bytes, NULL));
    CHECK_CALL(weft__cu.stream_synchronize(NULL));
}

static void launch(enum program program, void *args)
{
    /* The rest is for bulk copies and waits, which these programs do not have. */
    struct weft__cuda_launch params = {.copy_slot_bytes = 0};
    void *arguments[] = {&params, args};
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 32,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = WEFT__CUDA_WARP_BYTES};
    CHECK_CALL(weft__cu.launch_kernel_ex(&config, gpu.functions[program], arguments, NULL));
}

/* Sums `rows`; the sum is then on the host. */
static void sum_on_gpu(void)
{
    struct wp_row_sums_args args = {.dst = on_gpu(rows->memory, rows->dst),
                                    .num_srcs = rows->num_srcs,
                                    .sum = rows->sum,
                                    .num_elements = rows->num_elements};
    for (int32_t i = 0; i < rows->num_srcs; i++)
        args.srcs[i] = on_gpu(rows->memory, rows->srcs[i]);
    copy_to_gpu(rows->memory, sizeof rows->memory);
    launch(SUM, &args);
    copy_to_host(rows->memory, rows->memory, sizeof rows->memory);
}

TEST(a_gpu_gives_the_reference_bits)
{
    uint64_t random = 1;
    for (int i = 0; i < NUM_MIXED_SUMS * MIXED_TRIALS; i++) {
        draw_mixed_rows(rows, mixed_sum(i % NUM_MIXED_SUMS), &random);
        sum_on_gpu();
        check_mixed_rows(rows);
    }
}

TEST(all_pairs_of_special_values)
{
    for (int i = 0; i < NUM_MIXED_SUMS; i++) {
        pair_special_values(rows, mixed_sum(i));
        sum_on_gpu();
        check_mixed_rows(rows);
    }
}

TEST(a_source_can_be_written_over)
{
    uint64_t random = 1;
    for (int i = 0; i < NUM_MIXED_SUMS * MIXED_TRIALS; i++) {
        draw_mixed_rows(rows, mixed_sum(i % NUM_MIXED_SUMS), &random);
        if (!sum_into_a_source(rows, &random))
            continue;
        sum_on_gpu();
        check_mixed_rows(rows);
    }
}

/* ---------------------------------------------------------------- weights */

static void sum_weighted_on_gpu(enum weights_place place)
{
    const CUdeviceptr weights = gpu.memory + sizeof *rows;
    struct wp_row_weighted_args args = {.dst = on_gpu(rows->memory, rows->dst),
                                        .num_srcs = rows->num_srcs,
                                        .weights_place =
                                            weighted.weights == NULL ? WEIGHTS_NONE : place,
                                        .weights = (const float *)(uintptr_t)weights,
                                        .sum = weighted_sum_of(&weighted),
                                        .num_elements = rows->num_elements};
    for (int32_t i = 0; i < rows->num_srcs; i++)
        args.srcs[i] = on_gpu(rows->memory, rows->srcs[i]);
    copy_to_gpu(rows->memory, sizeof rows->memory);
    CHECK_CALL(weft__cu.memcpy_async(weights, (CUdeviceptr)(uintptr_t)weighted.drawn,
                                     sizeof weighted.drawn, NULL));
    launch(WEIGHTED_SUM, &args);
    copy_to_host(rows->memory, rows->memory, sizeof rows->memory);
}

TEST(sums_with_weights_give_the_reference_bits)
{
    uint64_t random = 1;
    for (int i = 0; i < NUM_WEIGHTED_SUMS * 4 * MIXED_TRIALS; i++) {
        draw_weighted_rows(&weighted, i % NUM_WEIGHTED_SUMS, &random);
        sum_weighted_on_gpu(i % 2 == 0 ? WEIGHTS_GLOBAL : WEIGHTS_SHARED);
        check_mixed_rows(rows);
    }
}

TEST(special_values_by_special_weights)
{
    for (int i = 0; i < NUM_WEIGHTED_SUMS * NUM_SPECIAL_NUMBERS; i++) {
        weigh_special_values(&weighted, i % NUM_WEIGHTED_SUMS, i / NUM_WEIGHTED_SUMS);
        sum_weighted_on_gpu(WEIGHTS_SHARED);
        check_mixed_rows(rows);
    }
}

/* ---------------------------------------------------------------- scales */

/* What has come is then in dst_memory. */
static void quantise_on_gpu(enum program program, struct wp_quantisation how)
{
    struct wp_row_quantising_args args = {.scales_offset = quantised.scales_offset,
                                          .num_dsts = quantised.num_dsts,
                                          .src = on_gpu(&quantised, quantised.src),
                                          .how = how,
                                          .num_elements = quantised.num_elements};
    for (int32_t d = 0; d < quantised.num_dsts; d++)
        args.dsts[d] = on_gpu(&quantised, quantised.dsts[d]);
    copy_to_gpu(&quantised, sizeof quantised);
    launch(program, &args);
    copy_to_host(&quantised, quantised.dst_memory, sizeof quantised.dst_memory);
}

TEST(quantised_rows_have_the_reference_bits)
{
    uint64_t random = 1;
    for (int i = 0; i < NUM_QUANTISATIONS * QUANTISED_TRIALS; i++) {
        draw_quantised_rows(&quantised, i % NUM_QUANTISATIONS, &random);
        quantise_on_gpu(QUANTISING, quantised.how);
        check_quantised_rows(&quantised);
    }
}

TEST(dequantised_rows_have_the_reference_bits)
{
    uint64_t random = 1;
    for (int i = 0; i < NUM_QUANTISATIONS * QUANTISED_TRIALS; i++) {
        draw_dequantised_rows(&quantised, i % NUM_QUANTISATIONS, &random);
        quantise_on_gpu(DEQUANTISING, reversed(quantised.how));
        check_quantised_rows(&quantised);
    }
}

/* ---------------------------------------------------------------- one type */

/* Reduces `reduced`; the results are then on the host. */
static void run_on_gpu(enum program program, struct wp_reduction reduction, int64_t num_elements)
{
    struct wp_row_reduction_args args = {.num_dsts = reduced.num_dsts,
                                         .num_srcs = reduced.num_srcs,
                                         .reduction = reduction,
                                         .num_elements = num_elements};
    for (int32_t i = 0; i < reduced.num_srcs; i++)
        args.srcs[i] = on_gpu(&reduced, reduced.srcs[i]);
    for (int32_t i = 0; i < reduced.num_dsts; i++)
        args.dsts[i] = on_gpu(&reduced, reduced.dsts[i]);
    copy_to_gpu(&reduced, sizeof reduced);
    launch(program, &args);
    copy_to_host(&reduced, reduced.dst, sizeof reduced.dst);
}

static void check_results(struct wp_reduction reduction, int64_t num_elements)
{
    for (int32_t i = 0; i < reduced.num_dsts; i++) {
        if (reduced.dsts[i] == NULL)
            continue;
        check_row(&reduced, reduced.dsts[i], reduction, num_elements);
        check_guards(reduced.dsts[i], (uint64_t)num_elements * wp_dtype_bytes(reduction.dtype));
    }
}

TEST(reductions_give_the_reference_bits)
{
    uint64_t random = 1;
    for (int i = 0; i < NUM_REDUCTIONS * NUM_TRIALS; i++) {
        const struct wp_reduction reduction = numbered_reduction(i % NUM_REDUCTIONS);
        const int64_t num_elements = 1 + (int64_t)(next_random(&random) % MAX_ELEMENTS);
        draw_rows(&reduced, reduction, num_elements, &random);
        compute_expected(&reduced, reduction, num_elements);
        run_on_gpu(REDUCTION, reduction, num_elements);
        check_results(reduction, num_elements);
    }
}

TEST(copies_of_any_alignment)
{
    const struct wp_reduction bytes = {WEFT_UINT8, WP_REDUCTION_SUM, 0};
    uint64_t random = 1;
    for (int i = 0; i < 20 * NUM_TRIALS; i++) {
        const int64_t num_bytes = 1 + (int64_t)(next_random(&random) % MAX_ELEMENTS);
        draw_rows(&reduced, bytes, num_bytes, &random);
        reduced.num_srcs = 1;
        compute_expected(&reduced, bytes, num_bytes);
        run_on_gpu(COPYING, bytes, num_bytes);
        check_results(bytes, num_bytes);
    }
}

int main(void)
{
    tests_choose_machine();
    if (!tests_on_cuda())
        return 77; /* tests take no GPU unasked */
    return tests_run(open_gpu, close_gpu);
}
