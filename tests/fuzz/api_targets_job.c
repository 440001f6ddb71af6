/* SPDX-License-Identifier: MIT */
/* Where a rank is, and what it has done: environment, rendezvous, jobs, statistics. */
#include <unistd.h>

#include "api_targets.h"

static void fill_id(struct fuzz_arguments *a, struct rng *rng)
{
    (void)rng;
    a->out = a->result_memory;
}

/* A rendezvous that is there already would be served once more. */
static void fill_serve(struct fuzz_arguments *a, struct rng *rng)
{
    (void)rng;
    a->ptr = &a->own_id;
}
FUZZ_CALL(call_serve, a->ptr == &a->own_id ? WEFT_OK : weft_rendezvous_serve(a->ptr))

static void fill_list(struct fuzz_arguments *a, struct rng *rng)
{
    a->out = a->result_memory;
    a->ranks[0] = getpid();
    a->ranks[1] = 1 + (int32_t)rng_below(rng, 8);
    a->ptr = &a->ranks[2];
}

/* No rank has come to the own rendezvous. */
static void fill_query(struct fuzz_arguments *a, struct rng *rng)
{
    fuzz_fill_output(a, rng);
    a->ranks[1] = 1;
    a->config = &a->ranks[2];
    a->ptr = &a->own_id;
}

static void fill_path(struct fuzz_arguments *a, struct rng *rng)
{
    static char path[] = "/dev/null";
    (void)rng;
    a->ptr = path;
}

static void fill_peer(struct fuzz_arguments *a, struct rng *rng)
{
    fuzz_fill_output(a, rng);
    a->ranks[0] = 0;
}

FUZZ_TARGET(unique_id_create, fill_id, (a->out), NULL, FUZZ_POINTERS("id", out, FUZZ_NULL))
FUZZ_TARGET_BY(rendezvous_serve, rendezvous_serve, fill_serve, call_serve, NULL,
               FUZZ_POINTERS("id", ptr, FUZZ_NULL, FUZZ_OUTSIDE))
FUZZ_TARGET(env_query, fuzz_fill_output, (a->out), NULL, FUZZ_POINTERS("info", out, FUZZ_NULL),
            FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(job_list, fill_list, (a->out, a->ranks[1], a->ptr), NULL,
            FUZZ_POINTERS("pids", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "max_pids", ranks[1], -1, INT32_MIN),
            FUZZ_POINTERS("num_pids", ptr, FUZZ_NULL))
FUZZ_TARGET(job_ids, fill_list, (a->ranks[0], a->out, a->ranks[1], a->ptr), NULL,
            FUZZ_NUMBERS(FUZZ_INT32, "pid", ranks[0], 0, -1, INT32_MIN),
            FUZZ_POINTERS("ids", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "max_ids", ranks[1], -1, INT32_MIN),
            FUZZ_POINTERS("num_ids", ptr, FUZZ_NULL))
FUZZ_TARGET(job_query, fill_query, (a->ptr, 0, a->out, a->ranks[1], a->config), NULL,
            FUZZ_POINTERS("id", ptr, FUZZ_NULL, FUZZ_OUTSIDE),
            FUZZ_POINTERS("ranks", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES,
            FUZZ_NUMBERS(FUZZ_INT32, "max_ranks", ranks[1], -1, INT32_MIN),
            FUZZ_POINTERS("num_ranks", config, FUZZ_NULL))
FUZZ_TARGET(stats_query, fuzz_fill_output, (a->comm, a->out), NULL, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("stats", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(stats_query_peer, fill_peer, (a->comm, a->ranks[0], a->out), NULL,
            FUZZ_OBJECT("comm", comm), FUZZ_NUMBERS(FUZZ_INT32, "rank", ranks[0], -1, 1, INT32_MAX),
            FUZZ_POINTERS("stats", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(stats_query_slowest, fuzz_fill_output, (a->comm, a->out), NULL,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("slowest", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(records_write, fill_path, (a->comm, a->ptr), NULL, FUZZ_OBJECT("comm", comm))
