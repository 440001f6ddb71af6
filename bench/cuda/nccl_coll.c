/* SPDX-License-Identifier: MIT */
/*
 * The collectives of NCCL, of the sizes and types that `weft coll` takes; a JSON object per figure.
 *
 *     weft run -n 4 --no-prefix -- nccl_coll
 *
 * One process per GPU. "nccl" and "nccl_graph" have memory of cudaMalloc, "nccl_window" and
 * "nccl_window_graph" symmetric windows, where this NCCL has them.
 */
#include <stdlib.h>

#include "nccl_rank.h"
#include "timing.h"
#include "try.h"
#include "workload/collective.h"
#include "workload/of_ranks.h"
#include "workload/options.h"

enum { CALLS = 20, MAX_ITERS = 10000 };

struct collective_options {
    struct option_list ops;    /* weft_collective */
    struct option_steps sizes; /* bytes, as nccl-tests counts */
    weft_dtype dtype;
    int32_t num_iters, num_warmups;
};

struct memory {
    void *send, *recv;         /* [bytes] of the GPU */
    uint64_t bytes;            /* of all operations */
    char *received, *expected; /* [bytes] of the host */
};

/* The kind of memory that NCCL is given. */
struct variant {
    const char *algorithm, *stream_kernel, *graph_kernel;
    int (*open)(struct nccl_rank *rank, struct memory *memory);
    void (*close)(struct nccl_rank *rank, struct memory *memory);
};

struct job {
    const struct collective_options *options;
    const struct variant *variant;
    struct nccl_rank rank;
    struct timing timing;
    struct memory memory;
    struct element_source source; /* of all inputs */
    uint64_t num_wrong;           /* in all figures */
};

struct work {
    struct job *job;
    const struct collective *collective;
};

/* Microseconds per call of the slowest rank; wrong elements of all ranks. */
static void print_figure(const struct work *work, const char *kernel, const struct figures *us,
                         uint64_t num_wrong)
{
    const struct collective *collective = work->collective;
    const char *op = collective_names[collective->kind], *variant = work->job->variant->algorithm;
    const char *dtype = dtype_names[collective->source.dtype];
    const unsigned long long bytes = collective_bytes(collective);
    const double algbw = (double)bytes / us->median * 1e-3;
    printf(
        "{\"name\": \"nccl_%s_us\", \"value\": %.3f, \"unit\": \"us\", \"configuration\": \"cuda, "
        "%d ranks, %s, %llu bytes, %s, %s\", ",
        op, us->median, collective->num_ranks, dtype, bytes, variant, kernel);
    printf("\"op\": \"%s\", \"algo\": \"%s\", \"num_ranks\": %d, \"bytes\": %llu, "
           "\"dtype\": \"%s\", \"kernel\": \"%s\", \"us_min\": %.3f, \"us_max\": %.3f, "
           "\"algbw\": %.3f, \"busbw\": %.3f, \"wrong\": %llu}\n",
           op, variant, collective->num_ranks, bytes, dtype, kernel, us->min, us->max, algbw,
           algbw * collective_bus_factor(collective), (unsigned long long)num_wrong);
    fflush(stdout); /* measured figures stay, also when the program is ended */
}

/* ---------------------------------------------------------------- NCCL */

static ncclDataType_t type_of(weft_dtype dtype)
{
    static const ncclDataType_t types[NUM_DTYPES + 1] = {
        [WEFT_INT32] = ncclInt32,  [WEFT_INT64] = ncclInt64,         [WEFT_BF16] = ncclBfloat16,
        [WEFT_FP16] = ncclFloat16, [WEFT_FP32] = ncclFloat32,        [WEFT_FP64] = ncclFloat64,
        [WEFT_UINT8] = ncclUint8,  [WEFT_FP8_E4M3] = ncclFloat8e4m3,
    };
    return types[dtype];
}

static int all_to_all(const struct job *job, size_t count, ncclDataType_t type)
{
    const struct nccl_rank *rank = &job->rank;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    NCCL_TRY(
        ncclAlltoAll(job->memory.send, job->memory.recv, count, type, rank->nccl, rank->stream));
#else
    const size_t row_bytes = count * dtype_bytes(job->source.dtype);
    NCCL_TRY(ncclGroupStart());
    for (int32_t other = 0; other < rank->num_ranks; other++) {
        const size_t offset = (size_t)other * row_bytes;
        NCCL_TRY(ncclSend((char *)job->memory.send + offset, count, type, other, rank->nccl,
                          rank->stream));
        NCCL_TRY(ncclRecv((char *)job->memory.recv + offset, count, type, other, rank->nccl,
                          rank->stream));
    }
    NCCL_TRY(ncclGroupEnd());
#endif
    return 0;
}

static int enqueue_call(void *argument)
{
    const struct work *work = argument;
    const struct job *job = work->job;
    const void *send = job->memory.send;
    void *recv = job->memory.recv;
    const size_t count = work->collective->count;
    const ncclDataType_t type = type_of(job->source.dtype);
    ncclComm_t nccl = job->rank.nccl;
    cudaStream_t stream = job->rank.stream;
    switch (work->collective->kind) {
    case WEFT_ALL_REDUCE:
        NCCL_TRY(ncclAllReduce(send, recv, count, type, ncclSum, nccl, stream));
        return 0;
    case WEFT_REDUCE_SCATTER:
        NCCL_TRY(ncclReduceScatter(send, recv, count, type, ncclSum, nccl, stream));
        return 0;
    case WEFT_ALL_GATHER:
        NCCL_TRY(ncclAllGather(send, recv, count, type, nccl, stream));
        return 0;
    case WEFT_ALL_TO_ALL:
        return all_to_all(job, count, type);
    default:
        NCCL_TRY(ncclBroadcast(send, recv, count, type, 0, nccl, stream));
        return 0;
    }
}

/* ---------------------------------------------------------------- memory */

static int open_plain(struct nccl_rank *rank, struct memory *memory)
{
    (void)rank;
    CUDA_TRY(cudaMalloc(&memory->send, memory->bytes));
    CUDA_TRY(cudaMalloc(&memory->recv, memory->bytes));
    return 0;
}

static void close_plain(struct nccl_rank *rank, struct memory *memory)
{
    (void)rank;
    cudaFree(memory->send);
    cudaFree(memory->recv);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static ncclWindow_t windows[2];

static int open_windows(struct nccl_rank *rank, struct memory *memory)
{
    NCCL_TRY(ncclMemAlloc(&memory->send, memory->bytes));
    NCCL_TRY(ncclMemAlloc(&memory->recv, memory->bytes));
    NCCL_TRY(ncclCommWindowRegister(rank->nccl, memory->send, memory->bytes, &windows[0],
                                    NCCL_WIN_COLL_SYMMETRIC));
    NCCL_TRY(ncclCommWindowRegister(rank->nccl, memory->recv, memory->bytes, &windows[1],
                                    NCCL_WIN_COLL_SYMMETRIC));
    return 0;
}

static void close_windows(struct nccl_rank *rank, struct memory *memory)
{
    for (int i = 0; i < 2; i++) {
        if (windows[i] != NULL)
            ncclCommWindowDeregister(rank->nccl, windows[i]);
    }
    ncclMemFree(memory->send);
    ncclMemFree(memory->recv);
}
#endif

static const struct variant variants[] = {
    {"default", "nccl", "nccl_graph", open_plain, close_plain},
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    {"windows", "nccl_window", "nccl_window_graph", open_windows, close_windows},
#endif
};
enum { NUM_VARIANTS = sizeof(variants) / sizeof(variants[0]) };

/* ---------------------------------------------------------------- measurement */

enum { POISON = 0xff };

static int open_memory(struct job *job)
{
    struct memory *memory = &job->memory;
    const size_t element_bytes = dtype_bytes(job->source.dtype);
    const uint64_t count = memory->bytes / element_bytes;
    TRY(job->variant->open(&job->rank, memory));
    CUDA_TRY(cudaMallocHost((void **)&memory->received, memory->bytes));
    CUDA_TRY(cudaMallocHost((void **)&memory->expected, memory->bytes));
    elements_fill(&job->source, job->rank.rank, 0, count, memory->received);
    CUDA_TRY(
        cudaMemcpy(memory->send, memory->received, count * element_bytes, cudaMemcpyHostToDevice));
    /* Streams that do not wait for the default stream may use it at once. */
    CUDA_TRY(cudaDeviceSynchronize());
    return 0;
}

/* Elements that are wrong, of all ranks. */
static int count_wrong(const struct work *work, const struct calls *calls, uint64_t *num_wrong)
{
    const struct nccl_rank *rank = &work->job->rank;
    const struct memory *memory = &work->job->memory;
    const weft_dtype dtype = work->collective->source.dtype;
    const uint64_t bytes = collective_recv_bytes(work->collective, rank->rank);
    uint64_t first_wrong;
    CUDA_TRY(cudaMemsetAsync(memory->recv, POISON, bytes, rank->stream));
    TRY(calls_enqueue(calls, rank->stream));
    TRY(nccl_rank_wait(rank));
    CUDA_TRY(cudaMemcpy(memory->received, memory->recv, bytes, cudaMemcpyDeviceToHost));
    int64_t sum = (int64_t)elements_count_wrong(dtype, memory->received, memory->expected,
                                                bytes / dtype_bytes(dtype), &first_wrong);
    WEFT_TRY(sum_of_ranks(rank->comm, &sum, 1));
    *num_wrong = (uint64_t)sum;
    return 0;
}

static int measure_calls(struct work *work, const struct calls *calls, const char *kernel)
{
    struct job *job = work->job;
    struct figures us;
    uint64_t num_wrong;
    TRY(count_wrong(work, calls, &num_wrong));
    TRY(timing_measure(&job->timing, calls, &us));
    job->num_wrong += num_wrong;
    if (job->rank.rank == 0)
        print_figure(work, kernel, &us, num_wrong);
    return 0;
}

static int measure_collective(struct job *job, const struct collective *collective)
{
    struct work work = {job, collective};
    struct calls calls = {.enqueue = enqueue_call, .argument = &work, .num_calls = CALLS};
    collective_expect(collective, job->rank.rank, 0,
                      collective_recv_bytes(collective, job->rank.rank), job->memory.expected);
    TRY(measure_calls(&work, &calls, job->variant->stream_kernel));
    int result = calls_capture(&calls, job->rank.stream);
    if (result == 0)
        result = measure_calls(&work, &calls, job->variant->graph_kernel);
    calls_destroy(&calls);
    return result;
}

static int measure_op(struct job *job, weft_collective kind)
{
    struct collective collective = {
        .kind = kind, .source = job->source, .redop = WEFT_SUM, .num_ranks = job->rank.num_ranks};
    uint64_t bytes = job->options->sizes.min;
    do {
        collective.count = collective_count(&collective, bytes);
        TRY(measure_collective(job, &collective));
    } while (option_steps_next(&job->options->sizes, &bytes));
    return 0;
}

static int measure_ops(struct job *job)
{
    const struct collective_options *options = job->options;
    TRY(open_memory(job));
    for (int32_t i = 0; i < options->ops.count; i++)
        TRY(measure_op(job, (weft_collective)options->ops.values[i]));
    return 0;
}

static int measure_variant(struct job *job, const struct variant *variant)
{
    job->variant = variant;
    job->memory = (struct memory){.bytes = job->options->sizes.max};
    const int result = measure_ops(job);
    cudaFreeHost(job->memory.received);
    cudaFreeHost(job->memory.expected);
    if (result == 0) /* else other ranks may be gone, without whom windows cannot be closed */
        variant->close(&job->rank, &job->memory);
    return result;
}

static int run(struct job *job)
{
    const struct collective_options *options = job->options;
    TRY(nccl_rank_open(&job->rank));
    job->timing = (struct timing){
        .rank = &job->rank, .num_warmups = options->num_warmups, .num_iters = options->num_iters};
    TRY(timing_init(&job->timing));
    /* NCCL promises no order of its sums: those of small whole numbers need none. */
    job->source = (struct element_source){1, options->dtype, ELEMENTS_WHOLE, NULL};
    for (int i = 0; i < NUM_VARIANTS; i++)
        TRY(measure_variant(job, &variants[i]));
    if (job->num_wrong == 0)
        return 0;
    if (job->rank.rank == 0)
        fprintf(stderr, "results are wrong: see the figures\n");
    return -1;
}

#define AT(member) OPTION_AT(struct collective_options, member)

/* By weft_collective. */
static const char *const op_names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                       "all_to_all", "broadcast",      NULL};

static const struct option_row option_table[] = {
    {OPTION_CHOICES, "ops", "LIST", "The operations",
     "all_reduce,reduce_scatter,all_gather,all_to_all,broadcast", AT(ops), .choices = op_names},
    {OPTION_STEPS, "bytes", "SIZES", "Sizes, as weft coll has them", "1K:64M:x4", AT(sizes)},
    {OPTION_CHOICE, "dtype", "TYPE", "Type of elements", "bf16", AT(dtype), WEFT_INT32,
     .choices = dtype_names + 1},
    {OPTION_INTEGER, "iters", "N", "Iterations that count", "21", AT(num_iters), 1, MAX_ITERS},
    {OPTION_INTEGER, "warmup", "N", "Iterations before them", "3", AT(num_warmups), 0, MAX_ITERS},
    {0}};

int main(int argc, char **argv)
{
    static const struct option_set set = {option_table, "The collectives of NCCL.", NULL};
    struct collective_options options = {0};
    struct job job = {.options = &options};
    options_parse(&set, &options, argc, argv);
    const int result = run(&job);
    timing_destroy(&job.timing);
    nccl_rank_close(&job.rank, result);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
