/* SPDX-License-Identifier: MIT */
/*
 * How fast a GPU sums rows of many sources, as on hosts of more GPUs than there are here: each
 * source is an area of its own on another GPU, several on each. Every element is compared with the
 * CPU's.
 *
 *     sums --tokens 2048 --sms 16,64
 */
#include "sums.h"

#include <stdlib.h>
#include <string.h>

#include "cuda_options.h"
#include "gpus.h"
#include "machine/float_bits.h"
#include "try.h"

enum { MIN_SRCS = 4, MAX_SRCS = 9, MAX_OFFSET = 16, NUM_WARPS = 16, CHUNK_BYTES = 16 << 10 };

struct bench {
    struct gpus gpus;
    struct cuda_options options;
    struct device_memory memory;
    size_t bytes;                     /* of an area */
    char *areas[MAX_RANKS][MAX_SRCS]; /* on each GPU, MAX_OFFSET bytes longer */
    char *dst[MAX_RANKS];
    uint16_t *elements[MAX_SRCS]; /* of the areas, on the host, the same on all GPUs */
    uint16_t *summed, *expected;  /* on the host */
    struct sums sums[MAX_RANKS];
    int num_blocks;
};

struct shape {
    enum sums_kind kind;
    int32_t num_srcs, offset;
};

static const char *const names[NUM_SUMS] = {"sum_tokens", "sum_direct", "avg_direct"};

/* ---------------------------------------------------------------- memory */

/* Values between -8 and 8, of which few are as precise as their sums. */
static uint16_t element(uint64_t i)
{
    uint64_t bits = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    bits ^= bits >> 29;
    const uint32_t exponent = 120 + (uint32_t)(bits >> 8) % 10;
    return (uint16_t)((bits & 0x807f) | exponent << 7);
}

static int make_elements(struct bench *bench)
{
    const size_t num_elements = bench->bytes / sizeof(uint16_t);
    bench->summed = malloc(bench->bytes + 1); /* never 0 */
    bench->expected = malloc(bench->bytes + 1);
    for (int s = 0; s < MAX_SRCS; s++) {
        bench->elements[s] = malloc(bench->bytes + 1);
        if (bench->elements[s] == NULL || bench->summed == NULL || bench->expected == NULL) {
            fprintf(stderr, "no memory\n");
            return -1;
        }
        for (size_t i = 0; i < num_elements; i++)
            bench->elements[s][i] = element((uint64_t)s * num_elements + i);
    }
    return 0;
}

static int init(struct bench *bench)
{
    const struct cuda_options *options = &bench->options;
    TRY(gpus_init(&bench->gpus, options->num_gpus));
    bench->bytes =
        (size_t)options->num_tokens.values[0] * (size_t)row_bytes_of(&options->formats[0]);
    TRY(make_elements(bench));
    for (int32_t gpu = 0; gpu < bench->gpus.num_gpus; gpu++) {
        CUDA_TRY(cudaSetDevice(gpu));
        for (int s = 0; s < MAX_SRCS; s++)
            TRY(device_alloc(&bench->memory, bench->bytes + MAX_OFFSET,
                             (void **)&bench->areas[gpu][s]));
        TRY(device_alloc(&bench->memory, bench->bytes + MAX_OFFSET, (void **)&bench->dst[gpu]));
    }
    return 0;
}

static void destroy(struct bench *bench)
{
    for (int s = 0; s < MAX_SRCS; s++)
        free(bench->elements[s]);
    free(bench->summed);
    free(bench->expected);
    device_free_all(&bench->memory);
    gpus_destroy(&bench->gpus);
}

/* All rows begin so many bytes after a multiple of 16. */
static int place(struct bench *bench, int32_t offset)
{
    for (int32_t gpu = 0; gpu < bench->gpus.num_gpus; gpu++) {
        CUDA_TRY(cudaSetDevice(gpu));
        for (int s = 0; s < MAX_SRCS; s++)
            CUDA_TRY(cudaMemcpy(bench->areas[gpu][s] + offset, bench->elements[s], bench->bytes,
                                cudaMemcpyHostToDevice));
    }
    return 0;
}

/* Source s of a GPU is area s of another one, in turn. */
static void choose(struct bench *bench, const struct shape *shape)
{
    const int32_t num_gpus = bench->gpus.num_gpus, num_others = num_gpus > 1 ? num_gpus - 1 : 1;
    const int64_t row_bytes = row_bytes_of(&bench->options.formats[0]);
    for (int32_t gpu = 0; gpu < num_gpus; gpu++) {
        struct sums *sums = &bench->sums[gpu];
        *sums = (struct sums){.kind = shape->kind,
                              .num_srcs = shape->num_srcs,
                              .dst = bench->dst[gpu] + shape->offset,
                              .num_rows = (int64_t)bench->bytes / row_bytes,
                              .row_bytes = row_bytes,
                              .span_bytes = row_bytes};
        for (int32_t s = 0; s < shape->num_srcs; s++)
            sums->srcs[s] = bench->areas[(gpu + 1 + s % num_others) % num_gpus][s] + shape->offset;
    }
}

/* ---------------------------------------------------------------- what is checked */

static uint16_t expected_element(const struct bench *bench, const struct shape *shape, size_t i)
{
    float sum = shape->kind == SUMS_OF_TOKENS ? 0.0f : -0.0f;
    for (int32_t s = 0; s < shape->num_srcs; s++)
        sum += weft__float_of_bits((uint32_t)bench->elements[s][i] << 16);
    return weft__bf16_of_float(shape->kind == SUMS_AVERAGE ? sum / (float)shape->num_srcs : sum);
}

static cudaError_t run_sums(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct bench *bench = argument;
    return sums_launch(&bench->sums[gpu], bench->num_blocks, NUM_WARPS, stream);
}

static cudaError_t poison(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct bench *bench = argument;
    return cudaMemsetAsync(bench->dst[gpu], 0xff, bench->bytes + MAX_OFFSET, stream);
}

static int check_gpu(const struct bench *bench, const struct shape *shape, int32_t gpu)
{
    for (size_t i = 0; i < bench->bytes / sizeof(uint16_t); i++) {
        if (bench->summed[i] == bench->expected[i])
            continue;
        fprintf(stderr, "%s of %d sources, offset %d: element %zu on GPU %d is %x, not %x\n",
                names[shape->kind], shape->num_srcs, shape->offset, i, gpu, bench->summed[i],
                bench->expected[i]);
        return -1;
    }
    return 0;
}

static int check(struct bench *bench, const struct shape *shape)
{
    for (size_t i = 0; i < bench->bytes / sizeof(uint16_t); i++)
        bench->expected[i] = expected_element(bench, shape, i);
    TRY(gpus_run(&bench->gpus, poison, bench));
    TRY(gpus_run(&bench->gpus, run_sums, bench));
    for (int32_t gpu = 0; gpu < bench->gpus.num_gpus; gpu++) {
        CUDA_TRY(cudaSetDevice(gpu));
        CUDA_TRY(
            cudaMemcpy(bench->summed, bench->sums[gpu].dst, bench->bytes, cudaMemcpyDeviceToHost));
        TRY(check_gpu(bench, shape, gpu));
    }
    return 0;
}

/* ---------------------------------------------------------------- what is measured */

/* *rate: of the rows that are read, in GB/s for each GPU. */
static int measure(struct bench *bench, const struct shape *shape, double *rate)
{
    const struct timing timing = {.work = run_sums,
                                  .argument = bench,
                                  .num_per_iter = 1,
                                  .num_iters = bench->options.num_iters,
                                  .num_warmups = bench->options.num_warmups};
    struct figures us;
    choose(bench, shape);
    TRY(check(bench, shape));
    TRY(gpus_time(&bench->gpus, &timing, &us));
    *rate = (double)shape->num_srcs * (double)bench->bytes / us.median * 1e-3;
    return 0;
}

static void print_rate(const struct bench *bench, const struct shape *shape, double rate,
                       double rate_of_4)
{
    const int num_sms = bench->num_blocks;
    if (bench->options.output == OUTPUT_JSON)
        printf("{\"name\": \"%s_gb_per_s\", \"num_srcs\": %d, \"offset\": %d, \"num_sms\": %d, "
               "\"value\": %.1f, \"to_4\": %.3f}\n",
               names[shape->kind], shape->num_srcs, shape->offset, num_sms, rate, rate / rate_of_4);
    else if (shape->num_srcs == MIN_SRCS)
        printf("%s, offset %d, %3d SMs: %d sources %6.1f GB/s; of that", names[shape->kind],
               shape->offset, num_sms, MIN_SRCS, rate);
    else
        printf(" %d: %.3f%s", shape->num_srcs, rate / rate_of_4,
               shape->num_srcs == MAX_SRCS ? "\n" : ",");
    fflush(stdout);
}

static int measure_kind(struct bench *bench, struct shape shape)
{
    double rate = 0, rate_of_4 = 0;
    for (shape.num_srcs = MIN_SRCS; shape.num_srcs <= MAX_SRCS; shape.num_srcs++) {
        TRY(measure(bench, &shape, &rate));
        if (shape.num_srcs == MIN_SRCS)
            rate_of_4 = rate;
        print_rate(bench, &shape, rate, rate_of_4);
    }
    return 0;
}

static int run(struct bench *bench)
{
    static const int32_t offsets[] = {0, 8, 4, 2};
    TRY(init(bench));
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        TRY(place(bench, offsets[i]));
        for (int32_t j = 0; j < bench->options.num_sms.count; j++) {
            bench->num_blocks = (int)bench->options.num_sms.values[j];
            for (int kind = 0; kind < NUM_SUMS; kind++)
                TRY(measure_kind(bench, (struct shape){.kind = kind, .offset = offsets[i]}));
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench bench;
    cuda_options_parse(&bench.options, "How fast GPUs sum rows of many sources.", argc, argv);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* see limits.c */
    const int result = run(&bench);
    destroy(&bench);
    return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
