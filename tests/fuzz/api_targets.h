/* SPDX-License-Identifier: MIT */
/* The functions that the fuzzer calls, on one rank: how to fill their arguments so that they are
 * valid, and what makes them invalid. */
#pragma once

#include <stddef.h>
#include <string.h>

#include "harness/ranks.h"
#include "workload/elements.h"
#include "workload/rng.h"

enum {
    FUZZ_TAIL_BYTES = 64,
    FUZZ_MAX_TOKENS = 8,
    FUZZ_TOPK = 3,
    FUZZ_EXPERTS = 5,
    FUZZ_BLOCKS = 2
};
enum { FUZZ_COUNT = 500 }; /* elements, at most, of a collective */
enum { FUZZ_LAYERS = 2, FUZZ_REPLICAS = 8, FUZZ_COPIES = 4 };

/* A config struct as a caller of a later version of the library has it. */
#define FUZZ_TAILED(type)                                                                          \
    struct {                                                                                       \
        type known;                                                                                \
        unsigned char tail[FUZZ_TAIL_BYTES];                                                       \
    }

struct fuzz_arguments {
    /* The objects that stay. */
    weft_comm *own_comm;
    weft_stream *own_stream;
    weft_event *own_event;
    weft_arena *own_arena;
    weft_ep *own_ep;
    weft_ep_handle *empty_handle;   /* for layout */
    weft_ep_handle *ready_handle;   /* laid out with FUZZ_MAX_TOKENS tokens, and notified */
    weft_ll *ll_by_rank, *empty_ll; /* without a result; the latter by expert */
    weft_ll *ready_ll;              /* the same, with one */
    weft_ll *masked_ll;             /* with masks */
    weft_coll *own_coll;
    char *arena_memory; /* enough for all outputs */
    char *arena_end;    /* of the heap block around it */
    void *heap_memory;
    char outside[4096];                /* not in the heap */
    weft_unique_id id;                 /* of ranks that are alone */
    weft_unique_id own_id;             /* of this process's rendezvous, to which no rank comes */
    const struct fuzz_arguments *gone; /* with objects that were destroyed */

    /* What the next call gets. */
    weft_comm *comm;
    weft_stream *stream;
    weft_event *event;
    void *graph; /* a mark: machine cpu has none */
    weft_coll_record *record;
    weft_arena *arena;
    weft_ep *ep;
    weft_ep_handle *handle;
    weft_ll *ll;
    weft_coll *coll;
    const void *send;
    void *recv;
    uint64_t count;
    int32_t dtype;
    int32_t op;
    int32_t root;
    void *out; /* where the result goes */
    void *ptr;
    uint64_t bytes;
    void *created; /* by a call that succeeded */
    void *config;  /* which of the following */
    FUZZ_TAILED(weft_comm_config) comm_config;
    int32_t ranks[3]; /* numbers of ranks, and others as small */
    char secret[40];
    FUZZ_TAILED(weft_ep_config) ep_config;
    FUZZ_TAILED(weft_ep_handle_config) handle_config;
    FUZZ_TAILED(weft_ep_layout_args) layout;
    FUZZ_TAILED(weft_ep_dispatch_args) dispatch;
    FUZZ_TAILED(weft_ep_combine_args) combine;
    FUZZ_TAILED(weft_ep_expand_args) expand;
    FUZZ_TAILED(weft_ep_reduce_args) reduce;
    FUZZ_TAILED(weft_ep_size_args) sizes;
    FUZZ_TAILED(weft_ll_config) ll_config;
    FUZZ_TAILED(weft_ll_job) ll_job;
    void *job; /* that */
    FUZZ_TAILED(weft_ll_dispatch_args) ll_dispatch;
    FUZZ_TAILED(weft_ll_combine_args) ll_combine;
    FUZZ_TAILED(weft_coll_config) coll_config;
    FUZZ_TAILED(weft_coll_args) coll_args;
    FUZZ_TAILED(weft_rma_args) rma;
    FUZZ_TAILED(weft_rows_args) rows;
    FUZZ_TAILED(weft_gate_args) gate;
    FUZZ_TAILED(weft_gate_backward_args) gate_backward;
    FUZZ_TAILED(weft_gate_balance_args) gate_balance;
    FUZZ_TAILED(weft_ep_replicas_args) choose_replicas;
    FUZZ_TAILED(weft_ep_copies_args) copies;
    int32_t copies_base[FUZZ_COPIES], copies_experts[FUZZ_COPIES];
    FUZZ_TAILED(weft_balance_config) balance;
    float loads[FUZZ_LAYERS * FUZZ_REPLICAS];
    int32_t replicas[2][FUZZ_LAYERS * FUZZ_REPLICAS]; /* the expert of each */
    const float *loads_at;                            /* these */
    int32_t *replicas_at[2];
    weft_coll_choice choices[NUM_COLLECTIVES];
    FUZZ_TAILED(weft_coll_all_to_all_v_args) all_to_all_v;
    FUZZ_TAILED(weft_coll_send_args) coll_send;
    FUZZ_TAILED(weft_coll_recv_args) coll_recv;
    int64_t send_count, send_offset, recv_count, recv_offset; /* of the one rank */
    weft_plane planes[WEFT_MAX_PLANES];
    uint64_t plane_row_bytes[WEFT_MAX_PLANES];
    int32_t expert_offsets[FUZZ_EXPERTS + 1];
    int32_t expert_ranks[FUZZ_EXPERTS];
    int64_t topk_idx[FUZZ_MAX_TOKENS * FUZZ_TOPK];
    float topk_weights[FUZZ_MAX_TOKENS * FUZZ_TOPK];
    char result_memory[4096];
};

enum fuzz_kind {
    FUZZ_INT32,
    FUZZ_INT64,
    FUZZ_POINTER,
    FUZZ_PAIRED, /* a pointer that may be NULL together with its partner: one of them per call */
    FUZZ_TAIL
};

/* Values of pointers. */
enum fuzz_pointer {
    FUZZ_NULL,
    FUZZ_OUTSIDE,
    FUZZ_LAST_BYTE, /* crooked, too */
    FUZZ_GARBAGE,
    FUZZ_ALL_ONES,
    FUZZ_OTHER, /* an object of another kind */
    FUZZ_GONE   /* one of this kind that was destroyed */
};

/* One way to make an argument invalid: any of the values at the offset in fuzz_arguments. */
struct fuzz_mutation {
    const char *field; /* that the message must name; alternatives are separated by | */
    size_t offset;
    enum fuzz_kind kind;
    int num_values;
    int64_t values[6]; /* FUZZ_TAIL: the size of the struct that the library knows */
};

struct fuzz_target {
    const char *name;
    /* Valid arguments, at random, with objects that are there already; or NULL. */
    void (*fill)(struct fuzz_arguments *arguments, struct rng *rng);
    weft_result (*call)(struct fuzz_arguments *arguments);
    /* After a call that succeeded; or NULL. */
    weft_result (*undo)(struct fuzz_arguments *arguments);
    const struct fuzz_mutation *mutations;
    int num_mutations;
};

/* All of them, in whichever order files are linked. */
int32_t fuzz_num_targets(void);
const struct fuzz_target *fuzz_target(int32_t idx);
void fuzz_register(const struct fuzz_target *target);

/* The objects of theirs that stay, when there is a weft_ep. 0 = done. */
int fuzz_set_up_ll(struct fuzz_arguments *arguments);

/* What targets of calls on a stream do after one. */
weft_result fuzz_wait(struct fuzz_arguments *arguments);

/* Zeros, and a size. Callers of a later version of the library have longer structs, with zeros in
 * the tail. */
#define FUZZ_FILL_SIZE(arguments, member, rng)                                                     \
    do {                                                                                           \
        memset(&(arguments)->member, 0, sizeof(arguments)->member);                                \
        (arguments)->member.known.size = sizeof(arguments)->member.known;                          \
        if (rng_below(rng, 4) == 0)                                                                \
            (arguments)->member.known.size += 8 * (size_t)rng_below(rng, 9);                       \
        (arguments)->config = &(arguments)->member;                                                \
    } while (0)

/* A struct to be filled in, as a caller of a much later version has it. */
void fuzz_fill_output(struct fuzz_arguments *arguments, struct rng *rng);
#define FUZZ_OUTPUT_SIZES                                                                          \
    FUZZ_NUMBERS(FUZZ_INT64, "size", result_memory, 0, 7, sizeof(size_t), (int64_t)1 << 40)

/* Tables of mutations are made of these. */
#define FUZZ_AT(member) offsetof(struct fuzz_arguments, member)
#define FUZZ_NUMBERS(kind, field, member, ...)                                                     \
    {                                                                                              \
        field, FUZZ_AT(member), kind, sizeof((int64_t[]){__VA_ARGS__}) / 8,                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
/* A number of a struct, by its name. */
#define FUZZ_FIELD(args, field, ...)                                                               \
    FUZZ_NUMBERS(sizeof((struct fuzz_arguments *)NULL)->args.known.field == 4 ? FUZZ_INT32         \
                                                                              : FUZZ_INT64,        \
                 #field, args.known.field, __VA_ARGS__)
#define FUZZ_POINTERS(field, member, ...) FUZZ_NUMBERS(FUZZ_POINTER, field, member, __VA_ARGS__)
/* No object: NULL, and what is none. */
#define FUZZ_OBJECT(field, member)                                                                 \
    FUZZ_POINTERS(field " is ", member, FUZZ_NULL), FUZZ_STRANGER(field, member)
#define FUZZ_STRANGER(field, member)                                                               \
    FUZZ_POINTERS(field " is 0x", member, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE,              \
                  FUZZ_ALL_ONES, FUZZ_OTHER, FUZZ_GONE)
#define FUZZ_PAIR(field, member, ...) FUZZ_NUMBERS(FUZZ_PAIRED, field, member, __VA_ARGS__)
/* A size that is no size, and a tail that is not zero. */
#define FUZZ_SIZES(type, member)                                                                   \
    FUZZ_NUMBERS(FUZZ_INT64, "size", member.known.size, 0, 7, (int64_t)1 << 40),                   \
        FUZZ_NUMBERS(FUZZ_TAIL, #type, member, sizeof(type))
/* What all calls have that enqueue by an object. */
#define FUZZ_ENQUEUED(object, type, member)                                                        \
    FUZZ_OBJECT(#object, object), FUZZ_OBJECT("stream", stream),                                   \
        FUZZ_POINTERS("args", config, FUZZ_NULL), FUZZ_SIZES(type, member)
/* What a target calls, or calls to undo it, with `a` as the arguments. */
#define FUZZ_CALL(name, call)                                                                      \
    static weft_result name(struct fuzz_arguments *a)                                              \
    {                                                                                              \
        return call;                                                                               \
    }
/* A row of the table: calls weft_##call with these arguments, which are members of `a`; then comes
 * what it refuses. */
#define FUZZ_TARGET(call, fill, arguments, undo, ...)                                              \
    FUZZ_CALL(call_##call, weft_##call arguments)                                                  \
    FUZZ_TARGET_BY(call, call, fill, call_##call, undo, __VA_ARGS__)
/* The same by a function. */
#define FUZZ_TARGET_BY(id, call, fill, function, undo, ...)                                        \
    static const struct fuzz_mutation id##_mutations[] = {__VA_ARGS__};                            \
    FUZZ_TARGET_LIKE(id, call, fill, function, undo, id)
/* The same, which refuses what `refused` does. */
#define FUZZ_TARGET_AS(call, fill, arguments, undo, refused)                                       \
    FUZZ_CALL(call_##call, weft_##call arguments)                                                  \
    FUZZ_TARGET_LIKE(call, call, fill, call_##call, undo, refused)
#define FUZZ_TARGET_LIKE(id, call, fill, function, undo, refused)                                  \
    __attribute__((constructor)) static void register_##id(void)                                   \
    {                                                                                              \
        static const struct fuzz_target target = {"weft_" #call,                                   \
                                                  fill,                                            \
                                                  function,                                        \
                                                  undo,                                            \
                                                  refused##_mutations,                             \
                                                  sizeof refused##_mutations /                     \
                                                      sizeof *refused##_mutations};                \
        fuzz_register(&target);                                                                    \
    }
