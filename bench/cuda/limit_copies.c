/* SPDX-License-Identifier: MIT */
#include "limit_copies.h"

#include <stdlib.h>

#include "try.h"

enum { ROW_BYTES = STAGE_BYTES }; /* of the pattern that parts are filled with */

enum traffic { ONE_WAY, ALL_TO_ALL };
enum direction { PUSH, PULL };

/* Part p of a GPU's source goes to GPU p, there to the part of the target that is the sender's. */
struct parts {
    struct gpus *gpus;
    const struct cuda_options *options;
    struct device_memory memory;
    size_t part_bytes;
    char part_text[24]; /* the same */
    struct pattern source[MAX_RANKS], target[MAX_RANKS];
    enum traffic traffic;
    enum direction direction;
    copy_kernel *kernel; /* NULL: the copy engines */
    int32_t num_blocks;
};

static int upload_numbers(struct parts *parts, int32_t gpu)
{
    const int32_t num_gpus = parts->gpus->num_gpus;
    const int32_t part_rows = (int32_t)(parts->part_bytes / ROW_BYTES);
    const size_t bytes = (size_t)(num_gpus * part_rows) * sizeof(int32_t);
    int32_t *sent = malloc(2 * bytes);
    if (sent == NULL) {
        perror("malloc");
        return -1;
    }
    int32_t *received = sent + bytes / sizeof(int32_t);
    for (int32_t peer = 0; peer < num_gpus; peer++) {
        for (int32_t row = 0; row < part_rows; row++) {
            sent[peer * part_rows + row] = (gpu * num_gpus + peer) * part_rows + row;
            received[peer * part_rows + row] = (peer * num_gpus + gpu) * part_rows + row;
        }
    }
    int result = device_upload(&parts->memory, sent, bytes, (void **)&parts->source[gpu].numbers);
    if (result == 0)
        result =
            device_upload(&parts->memory, received, bytes, (void **)&parts->target[gpu].numbers);
    free(sent);
    return result;
}

static cudaError_t fill_source(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct parts *parts = argument;
    return pattern_fill(&parts->source[gpu], stream);
}

static int parts_init(struct parts *parts)
{
    const size_t bytes = (size_t)parts->gpus->num_gpus * parts->part_bytes;
    const struct pattern pattern = {
        .num_rows = (int32_t)(bytes / ROW_BYTES), .num_planes = 1, .row_bytes = {ROW_BYTES}};
    for (int32_t gpu = 0; gpu < parts->gpus->num_gpus; gpu++) {
        struct pattern *source = &parts->source[gpu], *target = &parts->target[gpu];
        *source = *target = pattern;
        CUDA_TRY(cudaSetDevice(gpu));
        TRY(device_alloc(&parts->memory, bytes, (void **)&source->planes[0]));
        TRY(device_alloc(&parts->memory, bytes, (void **)&target->planes[0]));
        TRY(device_alloc(&parts->memory, sizeof(uint32_t), (void **)&target->num_wrong));
        TRY(upload_numbers(parts, gpu));
    }
    return gpus_run(parts->gpus, fill_source, parts);
}

/* One way, data goes from GPU 0 to GPU 1. */
static int32_t num_copies_of(const struct parts *parts, int32_t gpu)
{
    if (parts->traffic == ALL_TO_ALL)
        return parts->gpus->num_gpus - 1;
    return gpu == (parts->direction == PUSH ? 0 : 1) ? 1 : 0;
}

static void add_copy(const struct parts *parts, int32_t gpu, int32_t peer, struct copies *copies)
{
    const int32_t from = parts->direction == PUSH ? gpu : peer;
    const int32_t to = parts->direction == PUSH ? peer : gpu;
    copies->src[copies->num_copies] =
        parts->source[from].planes[0] + (size_t)to * parts->part_bytes;
    copies->dst[copies->num_copies] =
        parts->target[to].planes[0] + (size_t)from * parts->part_bytes;
    copies->num_copies++;
}

static cudaError_t copy(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct parts *parts = argument;
    struct copies copies = {.bytes = parts->part_bytes,
                            .num_faults = parts->gpus->gpu[gpu].num_faults};
    for (int32_t i = 1; i <= num_copies_of(parts, gpu); i++) {
        const int32_t peer =
            parts->traffic == ONE_WAY ? 1 - gpu : (gpu + i) % parts->gpus->num_gpus;
        add_copy(parts, gpu, peer, &copies);
    }
    if (parts->kernel != NULL && copies.num_copies > 0)
        return parts->kernel(&copies, parts->num_blocks, stream);
    cudaError_t error = cudaSuccess;
    for (int32_t i = 0; i < copies.num_copies && error == cudaSuccess; i++)
        error = cudaMemcpyAsync(copies.dst[i], copies.src[i], copies.bytes,
                                cudaMemcpyDeviceToDevice, stream);
    return error;
}

static cudaError_t poison_target(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct parts *parts = argument;
    const struct pattern *target = &parts->target[gpu];
    return cudaMemsetAsync(target->planes[0], 0xff, (size_t)target->num_rows * ROW_BYTES, stream);
}

/* Checks the parts that this GPU was to get; a GPU sends nothing to itself. */
static cudaError_t check_target(void *argument, int32_t gpu, cudaStream_t stream)
{
    const struct parts *parts = argument;
    const int32_t part_rows = (int32_t)(parts->part_bytes / ROW_BYTES);
    cudaError_t error = cudaSuccess;
    for (int32_t peer = 0; peer < parts->gpus->num_gpus && error == cudaSuccess; peer++) {
        if (parts->traffic == ONE_WAY ? gpu != 1 || peer != 0 : gpu == peer)
            continue;
        struct pattern part = parts->target[gpu];
        part.num_rows = part_rows;
        part.numbers += (size_t)peer * (size_t)part_rows;
        part.planes[0] += (size_t)peer * parts->part_bytes;
        error = pattern_check(&part, stream);
    }
    return error;
}

static int check(struct parts *parts, const struct measured *measured)
{
    TRY(gpus_run(parts->gpus, poison_target, parts));
    TRY(gpus_run(parts->gpus, copy, parts));
    TRY(gpus_run(parts->gpus, check_target, parts));
    for (int32_t gpu = 0; gpu < parts->gpus->num_gpus; gpu++) {
        uint32_t num_wrong;
        CUDA_TRY(cudaMemcpy(&num_wrong, parts->target[gpu].num_wrong, sizeof(num_wrong),
                            cudaMemcpyDeviceToHost));
        if (num_wrong != 0) {
            fprintf(stderr, "%s, %s, %d blocks: GPU %d has %u wrong units\n", measured->name,
                    measured->kernel, parts->num_blocks, gpu, num_wrong);
            return -1;
        }
    }
    return 0;
}

static int measure_one(struct parts *parts, struct measured *measured, struct report *report)
{
    const int32_t num_sent = parts->traffic == ONE_WAY ? 1 : parts->gpus->num_gpus - 1;
    const struct timing timing = {.work = copy,
                                  .argument = parts,
                                  .num_per_iter = 1,
                                  .num_iters = parts->options->num_iters,
                                  .num_warmups = parts->options->num_warmups};
    measured->rows = parts->part_text;
    measured->num_sms = parts->num_blocks;
    const double bytes = (double)num_sent * (double)parts->part_bytes;
    measured->bytes = (struct routed_bytes){bytes, bytes};
    TRY(check(parts, measured));
    TRY(gpus_time(parts->gpus, &timing, &measured->us));
    report_print(report, measured);
    return 0;
}

static int measure_kernel(struct parts *parts, struct measured measured, struct report *report)
{
    const struct option_list *num_sms = &parts->options->num_sms;
    for (int32_t i = 0; i < num_sms->count; i++) {
        parts->num_blocks = (int32_t)num_sms->values[i];
        if (parts->num_blocks <= parts->gpus->num_sms)
            TRY(measure_one(parts, &measured, report));
    }
    return 0;
}

static int measure_traffic(struct parts *parts, enum traffic traffic, struct report *report)
{
    static const char *const names[][2] = {[ONE_WAY] = {"push_one_way_us", "pull_one_way_us"},
                                           [ALL_TO_ALL] = {"push_all_us", "pull_all_us"}};
    parts->traffic = traffic;
    parts->direction = PUSH;
    parts->kernel = NULL;
    parts->num_blocks = 0;
    struct measured engines = {.name = traffic == ONE_WAY ? "copy_one_way_us" : "copy_all_us",
                               .kernel = "engines"};
    TRY(measure_one(parts, &engines, report));
    for (int direction = PUSH; direction <= PULL; direction++) {
        parts->direction = (enum direction)direction;
        struct measured measured = {.name = names[traffic][direction], .kernel = "ldst"};
        parts->kernel = copy_ldst;
        TRY(measure_kernel(parts, measured, report));
        measured.kernel = "bulk_ring";
        parts->kernel = copy_ring;
        if (parts->gpus->has_bulk)
            TRY(measure_kernel(parts, measured, report));
    }
    return 0;
}

static int measure(struct parts *parts, struct report *report)
{
    TRY(parts_init(parts));
    TRY(measure_traffic(parts, ONE_WAY, report));
    return measure_traffic(parts, ALL_TO_ALL, report);
}

int limit_copies(struct gpus *gpus, const struct cuda_options *options, struct report *report)
{
    if (gpus->num_gpus < 2) {
        fprintf(stderr, "One GPU: copies between GPUs are left out\n");
        return 0;
    }
    struct parts parts = {
        .gpus = gpus, .options = options, .part_bytes = (size_t)options->part_mib << 20};
    snprintf(parts.part_text, sizeof(parts.part_text), "%zu", parts.part_bytes);
    const int result = measure(&parts, report);
    device_free_all(&parts.memory);
    return result;
}
