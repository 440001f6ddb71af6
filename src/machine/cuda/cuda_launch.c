/* SPDX-License-Identifier: MIT */
/* Launches, and how large they are. */
#include "machine/cuda/network.h"
#include "machine/cuda/own_streams.h"
#include "machine/cuda/ranges.h"

enum { WARP_THREADS = WEFT__CUDA_WARP_THREADS, SLOT_ALIGNMENT = 128 };

int32_t weft__cuda_max_dynamic_bytes(const struct weft__cuda *cuda)
{
    return cuda->max_shared_bytes - WEFT__CUDA_BLOCK_BYTES;
}

/* A warp for every 32 tokens, in small blocks that spread over the SMs. */
static struct weft__grid grid_for_counting(int32_t num_tokens)
{
    enum { NUM_WARPS = 8, MAX_BLOCKS = 32, TOKENS_PER_BLOCK = NUM_WARPS * WARP_THREADS };
    const int32_t num_blocks = (num_tokens - 1) / TOKENS_PER_BLOCK + 1; /* of INT32_MAX, too */
    return (struct weft__grid){.num_blocks = num_blocks < MAX_BLOCKS ? num_blocks : MAX_BLOCKS,
                               .num_warps = NUM_WARPS};
}

/* A warp for each token: its time is that of many steps one after the other. The limit is what the
 * warps of an SM can be. */
static struct weft__grid grid_for_tokens(const struct weft__cuda *cuda, int32_t num_tokens)
{
    enum { NUM_WARPS = 8, BLOCKS_PER_SM = 8 };
    const int32_t most = cuda->num_sms * BLOCKS_PER_SM, wanted = (num_tokens - 1) / NUM_WARPS + 1;
    return (struct weft__grid){.num_blocks = wanted < most ? wanted : most,
                               .num_warps = NUM_WARPS,
                               .neighbours = WEFT__AWAITS_NOTHING};
}

/* The fewest SMs that fill the links, and some more since they are not equally fast. When every
 * rank sends as much to each, a rank moves R rows for R - 1 that cross its links. Measured on H200
 * (NV18): 64 SMs push 346 GB/s over the links, and one 51 GB/s in rows of 14336 bytes, 42 in rows
 * of 7392, those that stay on the rank included. */
static int32_t blocks_to_fill_links(double link_gbps, int32_t num_ranks, uint64_t row_bytes)
{
    enum {
        LEAST = 4,
        LOCAL = 32
    }; /* a rank's own rows want more than one, however slow the links */
    const double largest_gbps = 64.7, half_speed_bytes = 4000, margin = 1.3;
    if (num_ranks == 1)
        return LOCAL;
    const double sm_gbps =
        largest_gbps * (double)row_bytes / ((double)row_bytes + half_speed_bytes);
    const double rank_gbps = link_gbps * num_ranks / (num_ranks - 1);
    const double num_blocks = margin * rank_gbps / sm_gbps;
    if (num_blocks < LEAST)
        return LEAST;
    return num_blocks < LOCAL ? (int32_t)num_blocks + 1 : LOCAL;
}

/* Launches wait for other ranks, and hold their SMs meanwhile. Each gets at most one stream's share
 * of what the GPU can run, so that all streams can have one of a kind each, in an order that
 * differs by rank. Ranks that share the GPU wait for each other, too. */
static int32_t at_most_fitting(const struct weft__cuda *cuda, int64_t num_blocks,
                               int32_t blocks_per_sm)
{
    const int32_t most = cuda->num_sms / cuda->num_streams * blocks_per_sm / cuda->num_ranks_here;
    const int64_t fitting = num_blocks < most ? num_blocks : most;
    return fitting > 0 ? (int32_t)fitting : 1;
}

static struct weft__grid grid_for_rows(const struct weft__cuda *cuda, int32_t num_ranks,
                                       const struct weft__work *work)
{
    /* Of few tokens, latency counts. Measured on 2x H200, dispatch and combine of rows of 14336
     * bytes in graphs: 256 tokens take 21.4 and 19.1 us with the blocks that fill the links, 18.2
     * and 19.4 with 32; 512 take 30.2 and 33.9, or 30.5 and 30.3; with 1024 the gain has gone. */
    enum { PUSH_WARPS = 14, PULL_WARPS = 16, FEW_TOKENS = 512, FEW_TOKENS_BLOCKS = 32 };
    struct weft__grid grid = {
        .num_blocks = blocks_to_fill_links(cuda->links.gbps, num_ranks, work->row_bytes),
        .num_warps = PUSH_WARPS};
    if (work->kind == WEFT__WORK_PULL_ROWS) { /* each row comes from afar, and is added to others */
        grid.num_blocks = grid.num_blocks * 4 / 3;
        grid.num_warps = PULL_WARPS;
    }
    if (work->num_tokens <= FEW_TOKENS && grid.num_blocks < FEW_TOKENS_BLOCKS)
        grid.num_blocks = FEW_TOKENS_BLOCKS;
    if (work->kind == WEFT__WORK_PUSH_ROWS && cuda->code_capability >= 90)
        grid.copied_row_bytes = (uint32_t)work->row_bytes;
    grid.num_blocks = at_most_fitting(cuda, grid.num_blocks, 1);
    return grid;
}

/* A packet for every lane of half of the warps; the last warps of the first block have headers to
 * take. Small blocks spread over the SMs. Measured on H200: 16 KiB among 2 ranks take 3.48 us with
 * 7 warps of data to a block, 3.08 with 4; 64 KiB 5.5 where warps have data and headers, 4.2 where
 * not. Beyond a quarter of the GPU two packets for a lane come first, so that launches may start
 * early: 256 KiB take 3.64 us with 64 blocks, 3.94 with 128. */
static struct weft__grid grid_for_packets(const struct weft__cuda *cuda, uint64_t row_bytes)
{
    enum { NUM_WARPS = 8, BLOCKS_PER_SM = 2, BLOCK_BYTES = NUM_WARPS / 2 * WARP_THREADS * 16 };
    const int64_t quarter = (int64_t)(cuda->num_sms / 4) * BLOCKS_PER_SM;
    int64_t num_blocks = (int64_t)((row_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
    if (num_blocks > quarter)
        num_blocks = num_blocks / 2 > quarter ? num_blocks / 2 : quarter;
    return (struct weft__grid){.num_blocks = at_most_fitting(cuda, num_blocks, BLOCKS_PER_SM),
                               .num_warps = NUM_WARPS};
}

/* A block for every token, as far as half of the GPU's warps go. The warps of a block share its
 * rows, and copy their parts through registers. Rows that are packed want many warps, others few,
 * which meet sooner. Measured on 2x H100, steps in graphs: of 64 tokens by expert 32.6 us with 16
 * warps, 36.5 with 8, of 1 token 26.2 and 28.8; by rank 23.2 and 22.5, 17.9 and 17.7. Of more
 * tokens than half of the SMs more blocks count: 128 tokens by expert take 43.9 us with 66 blocks
 * of 16 warps, 41.7 with 128 of 8; by rank 31.2 and 29.7; 256 by rank 45.6 and 42.8. */
static struct weft__grid grid_for_few_rows(const struct weft__cuda *cuda,
                                           const struct weft__work *work)
{
    enum { FEW_WARPS = 8, BLOCKS_PER_SM = 2, MANY_WARPS = BLOCKS_PER_SM * FEW_WARPS };
    struct weft__grid grid = {.num_blocks = at_most_fitting(cuda, work->num_tokens, BLOCKS_PER_SM),
                              .num_warps = FEW_WARPS};
    if (work->kind == WEFT__WORK_FEW_PACKED_ROWS &&
        grid.num_blocks == at_most_fitting(cuda, grid.num_blocks, 1))
        grid.num_warps = MANY_WARPS;
    return grid;
}

/* A warp for each part of a token's row, and for each rank. Measured on 2x H100, steps by rank with
 * rows of FP8, in graphs: 8 tokens take 9.25 us so, with 64 blocks as well; 9.8 with 32 blocks of
 * 16 warps, or 33 of 8. One takes 8.4; 8.7 with 4 warps in each block, 8.6 with 16. */
static struct weft__grid grid_for_few_packets(const struct weft__cuda *cuda,
                                              const struct weft__work *work)
{
    enum { NUM_WARPS = 8, BLOCKS_PER_SM = 2 };
    return (struct weft__grid){
        .num_blocks = at_most_fitting(cuda, (work->most_units - 1) / NUM_WARPS + 1, BLOCKS_PER_SM),
        .num_warps = NUM_WARPS,
        .admission = WEFT__ADMITS_LATE};
}

/* As many blocks, with no more warps than have a part each, and some to hear the ranks, unless two
 * such launches would not fit. On 2x H200 (2026-11-26) a step by expert of 8 tokens of FP8 took
 * 11.7 us with 6 and 2 warps in each of 58 blocks, 12.2 with 8 and 2; one of 1 token of BF16 9.5
 * with 8 and 2, 11.0 with 6 and 2, of which some then have two parts. Warps that hear and send,
 * too, have not been measured beside these. */
static struct weft__grid grid_for_few_packed_packets(const struct weft__cuda *cuda,
                                                     int32_t num_ranks,
                                                     const struct weft__work *work)
{
    struct weft__grid grid = grid_for_few_packets(cuda, work);
    const int32_t num_warps = (work->num_units - 1) / grid.num_blocks + 1;
    if (grid.num_blocks > at_most_fitting(cuda, grid.num_blocks, 1))
        return grid;
    grid.num_receiver_warps = num_ranks;
    grid.num_warps = (num_warps < grid.num_warps ? num_warps : grid.num_warps) + num_ranks;
    return grid;
}

/* Measured on H200: 8 MiB reduced among 2 ranks take 36.1 us with 16 blocks, 34.6 with 64, 33.9
 * with 128. */
static struct weft__grid grid_for_tensor(const struct weft__cuda *cuda,
                                         const struct weft__work *work)
{
    enum { NUM_BLOCKS = 64, NUM_WARPS = 16 };
    struct weft__grid grid = {.num_blocks = at_most_fitting(cuda, NUM_BLOCKS, 1),
                              .num_warps = NUM_WARPS};
    if (work->kind == WEFT__WORK_PUSH_TENSOR && cuda->code_capability >= 90)
        grid.copied_row_bytes = (uint32_t)work->row_bytes;
    return grid;
}

struct weft__grid weft__cuda_choose_grid(const weft_comm *comm, const struct weft__work *work)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    switch (work->kind) {
    case WEFT__WORK_COUNT:
        return grid_for_counting(work->num_tokens);
    case WEFT__WORK_TOKENS:
        return grid_for_tokens(cuda, work->num_tokens);
    case WEFT__WORK_FEW_ROWS:
    case WEFT__WORK_FEW_PACKED_ROWS:
        return grid_for_few_rows(cuda, work);
    case WEFT__WORK_FEW_ROWS_IN_PACKETS:
        return grid_for_few_packets(cuda, work);
    case WEFT__WORK_FEW_PACKED_ROWS_IN_PACKETS:
        return grid_for_few_packed_packets(cuda, comm->num_ranks, work);
    case WEFT__WORK_PACKETS:
        return grid_for_packets(cuda, work->row_bytes);
    case WEFT__WORK_PUSH_TENSOR:
    case WEFT__WORK_PULL_TENSOR:
        return grid_for_tensor(cuda, work);
    default:
        return grid_for_rows(cuda, comm->num_ranks, work);
    }
}

/* As much as the row needs, or there is; the copies cut what does not fit. */
static uint32_t copy_slot_bytes(const struct weft__cuda *cuda, const struct weft__grid *grid)
{
    const int32_t most =
        weft__cuda_max_dynamic_bytes(cuda) / grid->num_warps - WEFT__CUDA_WARP_BYTES;
    const uint32_t bytes = grid->copied_row_bytes <= (uint32_t)(most - SLOT_ALIGNMENT)
                               ? grid->copied_row_bytes + SLOT_ALIGNMENT - 1
                               : (uint32_t)most;
    return bytes / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
}

/* Blocks that wait for other ranks, and for blocks there, must all run at once. Work that they wait
 * for needs an SM that has none of them: blocks spread over all SMs. */
static weft_result check_fit(const struct weft__cuda *cuda, const struct weft__launch *launch,
                             int32_t blocks_per_sm)
{
    const int leaves_sms = launch->grid.neighbours == WEFT__AWAITS_OTHER_WORK;
    const int64_t at_once = (int64_t)blocks_per_sm * cuda->num_sms;
    const int64_t most = leaves_sms && at_once >= cuda->num_sms ? cuda->num_sms - 1 : at_once;
    if (launch->grid.num_blocks <= most || launch->grid.neighbours == WEFT__AWAITS_NOTHING)
        return WEFT_OK;
    return weft__error(
        WEFT_ERROR_INVALID_ARGUMENT,
        "num_blocks is %d with num_warps %d: at most %lld blocks of %s run at once on "
        "CUDA device %d%s",
        launch->grid.num_blocks, launch->grid.num_warps, (long long)most, launch->program->name,
        cuda->ordinal, leaves_sms ? " and leave an SM to the work that row_signals tell of" : "");
}

/* Before the launch before it in the stream has ended, if that is weft's: its blocks get their SMs
 * and begin, up to weft__cuda_await_launch_before. Measured on H200, in graphs, where it could
 * begin at once: it saved 0.4 us of each launch. It cannot hold up the launch before, which admits
 * it when that waits for no other launch any more; the limit is for the sake of others who compute
 * meanwhile, and a stream that has two objects of weft's may exceed it. They lose nothing to one
 * that is admitted late: so a decode step of 8 tokens of FP8 takes 10.3 us among 4 H200, not 10.8
 * (2026-11-27). */
static int may_start_early(const struct weft__cuda *cuda, int32_t num_sms, int32_t num_sms_held)
{
    return cuda->code_capability >= 90 && cuda->num_ranks_here == 1 &&
           num_sms_held <= cuda->num_sms / cuda->num_streams - num_sms;
}

/* What a launch counts as, for the next one in its stream. Beside a launch that waits for the
 * caller's work none starts early: the work may still need the SMs. */
static int32_t sms_held(const struct weft__cuda *cuda, const struct weft__grid *grid,
                        int32_t num_sms)
{
    if (grid->neighbours == WEFT__AWAITS_OTHER_WORK)
        return cuda->num_sms;
    return grid->admission == WEFT__ADMITS_LATE ? 0 : num_sms;
}

struct launch_attributes {
    CUlaunchAttribute all[2];
    unsigned num;
};

static struct launch_attributes attributes_of(struct weft__cuda_queue *queue,
                                              const struct weft__launch *launch,
                                              int32_t blocks_per_sm)
{
    struct launch_attributes attributes = {.num = 0};
    const int32_t num_sms = (launch->grid.num_blocks + blocks_per_sm - 1) / blocks_per_sm;
    const struct weft__cuda *cuda = weft__cuda_of(launch->comm);
    const int32_t num_sms_held_before =
        atomic_exchange(&queue->num_sms_held, sms_held(cuda, &launch->grid, num_sms));
    /* All blocks get their SMs together, or wait together for those of other kernels. */
    if (launch->grid.num_blocks > 1 && launch->grid.neighbours != WEFT__AWAITS_NOTHING)
        attributes.all[attributes.num++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    if (may_start_early(cuda, num_sms, num_sms_held_before))
        attributes.all[attributes.num++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                .value = {.programmaticStreamSerializationAllowed = 1}};
    return attributes;
}

static weft_result launch_in_context(struct weft__cuda *cuda, struct weft__cuda_queue *queue,
                                     const struct weft__launch *launch)
{
    int32_t kernel_idx;
    WEFT__TRY(weft__cuda_find_kernel(cuda, launch, &kernel_idx));
    CUfunction function = cuda->kernels[kernel_idx].function;
    struct weft__cuda_launch params = {
        .timeout_ns = (uint64_t)launch->comm->timeout_ms * 1000000,
        .board = cuda->board,
        .failure_is_taken = (uint32_t *)(uintptr_t)cuda->failure_is_taken,
        .program_idx = (uint32_t)kernel_idx | (uint32_t)launch->call << WEFT__CUDA_CALL_BIT,
        .copy_slot_bytes = copy_slot_bytes(cuda, &launch->grid),
        .work_queue = weft__cuda_network_queue(cuda),
        .record = weft__cuda_record_of(launch),
    };
    const size_t shared_bytes =
        (WEFT__CUDA_WARP_BYTES + (size_t)params.copy_slot_bytes) * (size_t)launch->grid.num_warps;
    int32_t blocks_per_sm;
    WEFT__TRY(weft__cuda_blocks_per_sm(cuda, kernel_idx, launch->grid.num_warps,
                                       (uint32_t)shared_bytes, &blocks_per_sm));
    WEFT__TRY(check_fit(cuda, launch, blocks_per_sm));
    struct launch_attributes attributes = attributes_of(queue, launch, blocks_per_sm);
    void *arguments[] = {&params, (void *)(uintptr_t)launch->args};
    const CUlaunchConfig config = {.gridDimX = (unsigned)launch->grid.num_blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = (unsigned)launch->grid.num_warps * WARP_THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = (unsigned)shared_bytes,
                                   .hStream = queue->stream,
                                   .attrs = attributes.all,
                                   .numAttrs = attributes.num};
    WEFT__CUDA_TRY(weft__cu.launch_kernel_ex(&config, function, arguments, NULL),
                   "cannot launch %s", launch->program->name);
    return WEFT_OK;
}

weft_result weft__cuda_launch_on(struct weft__cuda_queue *queue, const struct weft__launch *launch)
{
    struct weft__cuda *cuda = weft__cuda_of(launch->comm);
    if (launch->grid.num_warps > WEFT__CUDA_MAX_WARPS)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "num_warps is %d, allowed are 1..%d",
                           launch->grid.num_warps, WEFT__CUDA_MAX_WARPS);
    const int is_first = !atomic_load(&queue->has_launched);
    WEFT__TRY(weft__cuda_enter(cuda));
    if (is_first)
        weft__cuda_first_work_begin();
    weft__cuda_range_begin(launch);
    const weft_result result = launch_in_context(cuda, queue, launch);
    weft__cuda_range_end();
    if (is_first) {
        atomic_store(&queue->has_launched, 1);
        weft__cuda_first_work_end();
    }
    weft__cuda_leave();
    return result;
}
