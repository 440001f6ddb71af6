/* SPDX-License-Identifier: MIT */
/*
 * The best that the GPUs of this host can do, one process for all of them: the bounds that weft's
 * operations are compared with. Kernels that know every place move the rows; a JSON object per
 * figure.
 *
 *     limits --sms 12,24 --tokens 4096 --rows 14336
 */
#include <stdlib.h>

#include "gpus.h"
#include "report.h"
#include "try.h"

/* One batch on all GPUs. */
struct batch {
    struct gpus *gpus;
    const struct cuda_options *options;
    const struct row_format *format;
    struct plan plan;
    struct device_memory memory;
    struct row_tables tables[MAX_RANKS];
    struct token_rows rows[MAX_RANKS];  /* what each GPU pushes, and pulls */
    struct pattern received[MAX_RANKS]; /* what it gets, as the rows of tag 0 */
    row_kernel *kernel;
    int32_t num_blocks;
};

/* The memory of one GPU; where its rows arrive is told to all. */
static int alloc_gpu(struct batch *batch, int32_t gpu)
{
    const struct plan *plan = &batch->plan;
    struct token_rows *rows = &batch->rows[gpu];
    struct pattern *received = &batch->received[gpu];
    const size_t num_tokens = (size_t)plan->num_tokens, num_recv = (size_t)plan->num_recv[gpu];
    TRY(row_tables_upload(&batch->tables[gpu], &batch->memory, plan, gpu));
    *rows = (struct token_rows){.rank = gpu,
                                .num_ranks = plan->num_ranks,
                                .num_tokens = plan->num_tokens,
                                .num_planes = batch->format->num_planes,
                                .rows = batch->tables[gpu].rows,
                                .num_faults = batch->gpus->gpu[gpu].num_faults};
    *received = (struct pattern){.num_rows = plan->num_recv[gpu],
                                 .num_planes = rows->num_planes,
                                 .numbers = batch->tables[gpu].received};
    for (int32_t plane = 0; plane < rows->num_planes; plane++) {
        const size_t row_bytes = (size_t)batch->format->row_bytes[plane];
        rows->planes[plane].row_bytes = received->row_bytes[plane] = (int32_t)row_bytes;
        TRY(device_alloc(&batch->memory, num_tokens * row_bytes, (void **)&rows->planes[plane].x));
        TRY(device_alloc(&batch->memory, num_recv * row_bytes, (void **)&received->planes[plane]));
    }
    TRY(device_alloc(&batch->memory, num_tokens * (size_t)rows->planes[0].row_bytes,
                     (void **)&rows->out));
    return device_alloc(&batch->memory, sizeof(uint32_t), (void **)&received->num_wrong);
}

static cudaError_t fill_tokens(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct batch *batch = argument;
    const struct token_rows *rows = &batch->rows[gpu];
    struct pattern pattern = {.num_rows = rows->num_tokens,
                              .num_planes = rows->num_planes,
                              .numbers = batch->tables[gpu].sent};
    for (int32_t plane = 0; plane < rows->num_planes; plane++) {
        pattern.planes[plane] = (char *)rows->planes[plane].x;
        pattern.row_bytes[plane] = rows->planes[plane].row_bytes;
    }
    return pattern_fill(&pattern, stream);
}

static int batch_init(struct batch *batch)
{
    for (int32_t gpu = 0; gpu < batch->gpus->num_gpus; gpu++) {
        CUDA_TRY(cudaSetDevice(gpu));
        TRY(alloc_gpu(batch, gpu));
    }
    for (int32_t gpu = 0; gpu < batch->gpus->num_gpus; gpu++) {
        for (int32_t peer = 0; peer < batch->gpus->num_gpus; peer++) {
            for (int32_t plane = 0; plane < batch->format->num_planes; plane++)
                batch->rows[gpu].planes[plane].recv[peer] = batch->received[peer].planes[plane];
        }
    }
    return gpus_run(batch->gpus, fill_tokens, batch);
}

static cudaError_t run_kernel(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct batch *batch = argument;
    return batch->kernel(&batch->rows[gpu], batch->num_blocks, stream);
}

enum { POISON = 0xff };

static cudaError_t poison_received(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct batch *batch = argument;
    const struct pattern *received = &batch->received[gpu];
    cudaError_t error = cudaSuccess;
    for (int32_t plane = 0; plane < received->num_planes && error == cudaSuccess; plane++)
        error = cudaMemsetAsync(received->planes[plane], POISON,
                                (size_t)received->num_rows * (size_t)received->row_bytes[plane],
                                stream);
    return error;
}

static cudaError_t check_received(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct batch *batch = argument;
    return pattern_check(&batch->received[gpu], stream);
}

/* Each rank's rows differ from those of the others, also where they are of the same token. */
static cudaError_t prepare_sums(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct batch *batch = argument;
    const struct token_rows *rows = &batch->rows[gpu];
    struct pattern pattern = batch->received[gpu];
    pattern.tag = gpu + 1;
    const cudaError_t error = cudaMemsetAsync(
        rows->out, POISON, (size_t)rows->num_tokens * (size_t)rows->planes[0].row_bytes, stream);
    return error != cudaSuccess ? error : pattern_fill(&pattern, stream);
}

static cudaError_t check_sums(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct batch *batch = argument;
    return pattern_check_sums(&batch->rows[gpu], batch->tables[gpu].sent,
                              batch->received[gpu].num_wrong, stream);
}

/* A kind of kernel, and how its result is checked. */
struct limit {
    const char *name, *kernel_name;
    row_kernel *kernel;
    gpu_work *prepare, *check;
};

static int check(struct batch *batch, const struct limit *limit)
{
    TRY(gpus_run(batch->gpus, limit->prepare, batch));
    TRY(gpus_run(batch->gpus, run_kernel, batch));
    TRY(gpus_run(batch->gpus, limit->check, batch));
    for (int32_t gpu = 0; gpu < batch->gpus->num_gpus; gpu++) {
        uint32_t num_wrong;
        CUDA_TRY(cudaMemcpy(&num_wrong, batch->received[gpu].num_wrong, sizeof(num_wrong),
                            cudaMemcpyDeviceToHost));
        if (num_wrong != 0) {
            fprintf(stderr, "%s, %s, %d blocks, rows of %s bytes: GPU %d has %u wrong units\n",
                    limit->name, limit->kernel_name, batch->num_blocks, batch->format->text, gpu,
                    num_wrong);
            return -1;
        }
    }
    return 0;
}

enum { FEW_TOKENS = 512, NUM_PER_ITER_OF_FEW = 20 };

static int measure(struct batch *batch, const struct limit *limit, const struct report *report)
{
    const struct cuda_options *options = batch->options;
    batch->kernel = limit->kernel;
    for (int32_t i = 0; i < options->num_sms.count; i++) {
        batch->num_blocks = (int32_t)options->num_sms.values[i];
        if (batch->num_blocks > batch->gpus->num_sms)
            continue;
        const struct timing timing = {
            .work = run_kernel,
            .argument = batch,
            .num_per_iter = batch->plan.num_tokens <= FEW_TOKENS ? NUM_PER_ITER_OF_FEW : 1,
            .num_iters = options->num_iters,
            .num_warmups = options->num_warmups};
        struct measured measured = {.name = limit->name,
                                    .kernel = limit->kernel_name,
                                    .num_sms = batch->num_blocks,
                                    .num_tokens = batch->plan.num_tokens,
                                    .rows = batch->format->text,
                                    .bytes =
                                        routing_bytes(&batch->plan, row_bytes_of(batch->format))};
        TRY(check(batch, limit));
        TRY(gpus_time(batch->gpus, &timing, &measured.us));
        report_print(report, &measured);
    }
    return 0;
}

static int measure_batch(struct batch *batch, const struct report *report)
{
    static const struct limit push = {"push_rows_us", "ldst", push_ldst, poison_received,
                                      check_received},
                              pull = {"pull_sum_rows_us", "ldst", pull_ldst, prepare_sums,
                                      check_sums},
                              pull_in_bulk = {"pull_sum_rows_us", "bulk", pull_bulk, prepare_sums,
                                              check_sums};
    TRY(batch_init(batch));
    TRY(measure(batch, &push, report));
    if (batch->format != &batch->options->formats[0])
        return 0;
    TRY(measure(batch, &pull, report));
    return batch->gpus->has_bulk ? measure(batch, &pull_in_bulk, report) : 0;
}

static int measure_formats(struct gpus *gpus, const struct cuda_options *options,
                           const struct plan *plan, const struct report *report)
{
    int result = 0;
    for (int32_t i = 0; i < options->num_formats && result == 0; i++) {
        struct batch batch = {
            .gpus = gpus, .options = options, .format = &options->formats[i], .plan = *plan};
        result = measure_batch(&batch, report);
        device_free_all(&batch.memory);
    }
    return result;
}

static int run(struct gpus *gpus, const struct cuda_options *options)
{
    int result = 0;
    TRY(gpus_init(gpus, options->num_gpus));
    if (!gpus->has_bulk)
        fprintf(stderr, "No bulk copies on these GPUs: their kernel is left out\n");
    const struct report report = {.num_ranks = gpus->num_gpus,
                                  .num_topk = options->num_topk,
                                  .num_experts = options->num_experts};
    for (int32_t i = 0; i < options->num_tokens.count && result == 0; i++) {
        struct plan plan;
        TRY(routing_init(&plan, options, (int32_t)options->num_tokens.values[i], gpus->num_gpus));
        result = measure_formats(gpus, options, &plan, &report);
        plan_destroy(&plan);
    }
    return result;
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
