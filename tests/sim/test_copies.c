/* SPDX-License-Identifier: MIT */
/* Copies of experts on the sim: whatever order lanes and ranks take, weights, sums and choices are
 * right; and syncs that are not there are found. */
#include <string.h>

#include "harness/cmocka.h"
#include "sim_job.h"

enum { NUM_SEEDS = 150, SEEDS_WEAKENED = 40, NUM_REPLICAS = 8 };
enum { ELEMENTS = 4001, STAGED = 3200, CHOICES = 24 }; /* several chunks for each warp */

/* Rank r has two of the replicas; expert 0 has three copies. */
static const int32_t base[NUM_REPLICAS] = {0, -1, 1, -1, 2, -1, 3, -1};
static const int32_t experts[NUM_REPLICAS] = {0, 2, 1, 0, 2, 0, 3, 0};

struct area {
    float weights[2][ELEMENTS], gradients[2][ELEMENTS];
    float staging[3 * STAGED];
    int64_t choices[CHOICES];
    int32_t granules[2 * WEFT_BALANCE_GRANULES];
};

static float weight_of(int32_t replica, int32_t i)
{
    return base[replica] < 0 ? -1.0f : (float)(100 * base[replica] + i);
}

static float gradient_of(int32_t replica, int32_t i)
{
    return (float)(replica + 1) / 3.0f + (float)i * 1e6f;
}

static float sum_of(int32_t replica, int32_t i)
{
    float sum = gradient_of(replica, i);
    for (int32_t other = 0; other < NUM_REPLICAS; other++)
        if (base[replica] >= 0 && other != replica && experts[other] == base[replica])
            sum += gradient_of(other, i);
    return sum;
}

static void fill(struct area *area, int32_t rank)
{
    weft__sim_host_writes(area, sizeof *area);
    for (int32_t i = 0; i < 2 * ELEMENTS; i++) {
        const int32_t replica = 2 * rank + i / ELEMENTS;
        area->weights[i / ELEMENTS][i % ELEMENTS] = weight_of(replica, i % ELEMENTS);
        area->gradients[i / ELEMENTS][i % ELEMENTS] = gradient_of(replica, i % ELEMENTS);
    }
    for (int32_t i = 0; i < CHOICES; i++)
        area->choices[i] = i % 4 - 1; /* of which 0 and 1 are experts */
    for (int32_t i = 0; i < 2 * WEFT_BALANCE_GRANULES; i++)
        area->granules[i] = 1000 + i;
}

static weft_result call_all(weft_comm *comm, struct area *area, weft_stream *stream)
{
    weft_plane plane = {
        .size = sizeof plane, .dst = area->weights, .row_bytes = ELEMENTS * sizeof(float)};
    weft_ep_copies_args args = {.size = sizeof args,
                                .base = base,
                                .experts = experts,
                                .num_replicas = NUM_REPLICAS,
                                .num_planes = 1,
                                .planes = &plane};
    weft_result result = weft_ep_fetch_copies(comm, &args, stream);
    if (result != WEFT_OK)
        return result;
    plane.dst = area->gradients;
    args.dtype = WEFT_FP32;
    args.staging = area->staging;
    args.staging_bytes = sizeof area->staging;
    result = weft_ep_reduce_copies(comm, &args, stream);
    if (result != WEFT_OK)
        return result;
    return weft_ep_choose_replicas(
        comm,
        WEFT_ARGS(weft_ep_replicas_args, .topk_idx = area->choices, .replica_idx = area->choices,
                  .granules = area->granules, .index_type = WEFT_INT64, .num_tokens = CHOICES / 3,
                  .num_topk = 3, .num_experts = 2),
        stream);
}

/* 0: as it must be. */
static int check(struct area *area, int32_t rank)
{
    int num_wrong = 0;
    weft__sim_host_reads(area, sizeof *area);
    for (int32_t i = 0; i < 2 * ELEMENTS; i++) {
        const int32_t local = i / ELEMENTS, at = i % ELEMENTS, replica = 2 * rank + local;
        num_wrong += area->weights[local][at] != (float)(100 * experts[replica] + at);
        num_wrong += area->gradients[local][at] != sum_of(replica, at);
    }
    for (int32_t i = 0; i < CHOICES; i++) {
        const int32_t expert = i % 4 - 1, granule = (rank + i / 3) % WEFT_BALANCE_GRANULES;
        const int64_t wanted =
            expert == 0 || expert == 1 ? 1000 + WEFT_BALANCE_GRANULES * expert + granule : -1;
        num_wrong += area->choices[i] != wanted;
    }
    return num_wrong;
}

static int run_all(weft_comm *comm, weft_stream *stream, void *area)
{
    const int32_t rank = weft_comm_rank(comm);
    fill(area, rank);
    return call_all(comm, area, stream) != WEFT_OK || weft_stream_synchronize(stream) != WEFT_OK ||
           check(area, rank);
}

static int run_rank(int32_t number, void *job)
{
    return sim_job_use_block(job, number, sizeof(struct area), run_all);
}

static void run_schedule(const void *none, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *result)
{
    struct sim_job job = {.num_nodes = seed % 2 ? 2 : 1,
                          .ranks_per_node = seed % 2 ? 2 : 4,
                          .weakened_site = weakened_site};
    (void)none;
    sim_job_run(&job, run_rank, &job, seed, result);
}

TEST_CALL(copies_do_not_depend_on_the_schedule,
          schedules_expect_sound(&(struct schedules){run_schedule, NULL, NUM_SEEDS}))

static int is_of_copies(const struct weft__sim_site *site)
{
    return strstr(site->file, "add_copies.c") != NULL && strcmp(site->kind, "warp sync") == 0;
}

TEST(every_sync_is_needed)
{
    const struct schedules schedules = {run_schedule, NULL, SEEDS_WEAKENED};
    assert_int_equal(schedules_expect_needed(&schedules, is_of_copies), 2);
}
