/* SPDX-License-Identifier: MIT */
/* Communicators made and split, memory of the machine, teams, machines, streams and events. */
#include "api_targets.h"

enum { DST_OFFSET = 16 << 10 };

/* ---------------------------------------------------------------- communicators */

/* One rank alone, which may be given nodes, and a heap. */
static void fill_config(struct fuzz_arguments *a, struct rng *rng)
{
    weft_comm_config *config = &a->comm_config.known;
    FUZZ_FILL_SIZE(a, comm_config, rng);
    config->heap_bytes = rng_below(rng, 100000);
    config->heap_max_bytes = UINT64_C(1) << 20;
    config->timeout_ms = rng_below(rng, 100000);
    config->num_nodes = (int32_t)rng_below(rng, 2);
    config->machine = (weft_machine)rng_below(rng, 2);
    a->ranks[0] = 0;
    a->ranks[1] = 1;
    a->ranks[2] = 1;
}

#define CONFIG_MUTATIONS                                                                           \
    FUZZ_SIZES(weft_comm_config, comm_config),                                                     \
        FUZZ_NUMBERS(FUZZ_INT64, "heap_bytes|heap_max_bytes", comm_config.known.heap_bytes, -1,    \
                     INT64_MAX, (int64_t)1 << 47),                                                 \
        FUZZ_NUMBERS(FUZZ_INT64, "heap_bytes|heap_max_bytes", comm_config.known.heap_max_bytes,    \
                     -1, INT64_MIN, (int64_t)1 << 47),                                             \
        FUZZ_FIELD(comm_config, num_nodes, -1, 2, INT32_MAX, INT32_MIN),                           \
        FUZZ_FIELD(comm_config, machine, -1, 3, INT32_MAX, INT32_MIN),                             \
        FUZZ_FIELD(comm_config, num_streams, -1, 65, INT32_MAX, INT32_MIN)

static void fill_create(struct fuzz_arguments *a, struct rng *rng)
{
    fill_config(a, rng);
    a->ptr = &a->id;
}

FUZZ_CALL(undo_create, weft_comm_destroy(a->created))

/* The color may be any that is not negative, the key any at all. */
static void fill_split(struct fuzz_arguments *a, struct rng *rng)
{
    fill_config(a, rng);
    a->comm_config.known.num_nodes = 0;
    a->ranks[0] = rng_below(rng, 2) == 0 ? INT32_MAX : (int32_t)rng_below(rng, 3);
    a->ranks[1] = rng_below(rng, 2) == 0 ? INT32_MIN : INT32_MAX;
}

/* A rank alone has none to exclude. */
static void fill_shrink(struct fuzz_arguments *a, struct rng *rng)
{
    fill_split(a, rng);
    a->ranks[0] = 0;
    a->ranks[1] = 0;
}

/* By no rank, since no new one comes. */
static void fill_grow(struct fuzz_arguments *a, struct rng *rng)
{
    fill_create(a, rng);
    a->ranks[0] = 1;
}

static void fill_id(struct fuzz_arguments *a, struct rng *rng)
{
    (void)rng;
    a->ptr = a->result_memory;
    strcpy(a->result_memory, "127.0.0.1");
    strcpy(a->secret, "00112233445566778899aabbccddeeff");
    a->config = a->secret;
    a->ranks[0] = 1;
    a->out = a->result_memory + sizeof a->result_memory - sizeof(weft_unique_id);
}

/* ---------------------------------------------------------------- memory */

static weft_result undo_alloc(struct fuzz_arguments *a)
{
    memset(a->created, 1, a->bytes);
    return weft_memory_free(a->own_comm, a->created);
}

static void fill_copy(struct fuzz_arguments *a, struct rng *rng)
{
    a->ptr = rng_below(rng, 2) == 0 ? a->outside : a->arena_memory;
    a->out = a->arena_memory + DST_OFFSET;
    a->bytes = 1 + rng_below(rng, sizeof a->outside);
}

/* ---------------------------------------------------------------- queries */

static void fill_team(struct fuzz_arguments *a, struct rng *rng)
{
    fuzz_fill_output(a, rng);
    a->ranks[0] = (int32_t)rng_below(rng, WEFT_TEAM_RAIL + 1);
}

static void fill_machine(struct fuzz_arguments *a, struct rng *rng)
{
    fuzz_fill_output(a, rng);
    a->ranks[0] = WEFT_MACHINE_CPU;
    a->ranks[1] = 0;
}

/* ---------------------------------------------------------------- streams and events */

FUZZ_CALL(undo_stream_create, weft_stream_destroy(a->created))

FUZZ_CALL(undo_event_create, weft_event_destroy(a->created))

/* An event of its own, whose record has been passed. */
static void fill_elapsed(struct fuzz_arguments *a, struct rng *rng)
{
    (void)rng;
    a->ptr = a->own_event;
    a->out = a->result_memory;
    (void)weft_event_record(a->own_event, a->own_stream);
    (void)weft_stream_synchronize(a->own_stream);
}

FUZZ_TARGET(comm_create, fill_create, (a->ptr, a->ranks[0], a->ranks[1], a->config, a->out),
            undo_create, FUZZ_POINTERS("id", ptr, FUZZ_NULL, FUZZ_OUTSIDE),
            FUZZ_POINTERS("comm", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "rank", ranks[0], -1, INT32_MAX, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT32, "num_ranks", ranks[1], -1, 0, 65537, INT32_MAX),
            CONFIG_MUTATIONS)
FUZZ_TARGET(comm_create_from_env, fill_config, (a->config, a->out), undo_create,
            FUZZ_POINTERS("comm", out, FUZZ_NULL), CONFIG_MUTATIONS)
FUZZ_TARGET(comm_split, fill_split, (a->comm, a->ranks[0], a->ranks[1], a->config, a->out),
            undo_create, FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("child", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "color", ranks[0], -2, INT32_MIN), CONFIG_MUTATIONS)
FUZZ_TARGET(comm_shrink, fill_shrink, (a->comm, a->ranks, a->ranks[1], a->config, a->out),
            undo_create, FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("child", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "num_excluded", ranks[1], -1, 1, INT32_MAX, INT32_MIN),
            CONFIG_MUTATIONS)
FUZZ_TARGET(comm_grow, fill_grow, (a->comm, a->ptr, a->ranks[0], a->config, a->out), undo_create,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("id", ptr, FUZZ_NULL, FUZZ_OUTSIDE),
            FUZZ_POINTERS("grown", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "num_ranks", ranks[0], -1, 0, 65537, INT32_MAX),
            CONFIG_MUTATIONS)
FUZZ_TARGET(comm_unique_id, fuzz_fill_output, (a->comm, a->out), NULL, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("id", out, FUZZ_NULL))
FUZZ_TARGET(comm_split_strided, fill_config,
            (a->comm, a->ranks[0], a->ranks[1], a->ranks[2], a->config, a->out), undo_create,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("child", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "first", ranks[0], -1, 1, INT32_MAX, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT32, "stride", ranks[1], 0, -1, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT32, "num_ranks", ranks[2], 0, 2, -1, INT32_MAX), CONFIG_MUTATIONS)
FUZZ_TARGET(unique_id_at, fill_id, (a->ptr, a->ranks[0], a->config, a->out), NULL,
            FUZZ_POINTERS("address", ptr, FUZZ_NULL), FUZZ_POINTERS("id", out, FUZZ_NULL),
            FUZZ_POINTERS("secret", config, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "port", ranks[0], 0, -1, 65536, INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT64, "secret", secret, 0, -1, 'g'),
            FUZZ_NUMBERS(FUZZ_INT64, "address", result_memory, 0))
FUZZ_TARGET(memory_alloc, NULL, (a->comm, a->bytes, a->out), undo_alloc, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("ptr", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60, -256))
FUZZ_TARGET(memory_free, NULL, (a->comm, a->ptr), NULL, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("ptr", ptr, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE))
FUZZ_TARGET(memory_copy, fill_copy, (a->comm, a->out, a->ptr, a->bytes), NULL,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("dst", out, FUZZ_NULL),
            FUZZ_POINTERS("src", ptr, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT64, "dst|src", bytes, -1, INT64_MAX, INT64_MIN))
FUZZ_TARGET(team_query, fill_team, (a->comm, (weft_team)a->ranks[0], a->out), NULL,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("info", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "team", ranks[0], -1, WEFT_TEAM_RAIL + 1, INT32_MAX,
                         INT32_MIN),
            FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(machine_query, fill_machine, ((weft_machine)a->ranks[0], a->out), NULL,
            FUZZ_POINTERS("info", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "machine", ranks[0], -1, WEFT_MACHINE_CUDA + 1, INT32_MAX,
                         INT32_MIN),
            FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(device_query, fill_machine, ((weft_machine)a->ranks[0], a->ranks[1], a->out), NULL,
            FUZZ_POINTERS("info", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT32, "machine", ranks[0], -1, WEFT_MACHINE_CUDA + 1, INT32_MAX,
                         INT32_MIN),
            FUZZ_NUMBERS(FUZZ_INT32, "device_idx", ranks[1], -1, 1, INT32_MAX, INT32_MIN),
            FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(stream_create, NULL, (a->comm, a->out), undo_stream_create, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("stream", out, FUZZ_NULL))
FUZZ_TARGET(event_create, NULL, (a->comm, a->out), undo_event_create, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("event", out, FUZZ_NULL))
FUZZ_TARGET(event_elapsed_us, fill_elapsed, (a->event, a->ptr, a->out), NULL,
            FUZZ_OBJECT("start", event),
            FUZZ_POINTERS("end", ptr, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_GARBAGE),
            FUZZ_POINTERS("elapsed_us", out, FUZZ_NULL))
