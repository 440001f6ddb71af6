/* SPDX-License-Identifier: MIT */
/* fuzz_api_arguments [--list | SEED [ITERATIONS]]: calls with arguments drawn at random, valid and
 * invalid; or the names of the calls.
 * Every call returns; an invalid one gives an error whose message names an argument that is wrong;
 * a valid one succeeds; test_ep_shapes and test_coll_shapes compare results. Failures tell the seed
 * that brings them back. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "api_targets.h"
#include "harness/machine.h"
#include "harness/memory.h"

enum { MAX_MUTATIONS = 3 };

/* Where the fuzzer is: in memory that outlives a crash. */
struct position {
    int64_t iteration;
    char call[256];
};

struct plan {
    uint64_t seed;
    int64_t num_iterations;
    struct position *position;
};

static int set_up_ep(struct fuzz_arguments *a)
{
    weft_ep_handle_config handle = WEFT_INIT(weft_ep_handle_config);
    handle.max_tokens = FUZZ_MAX_TOKENS;
    handle.num_topk = FUZZ_TOPK;
    for (int i = 0; i < FUZZ_MAX_TOKENS * FUZZ_TOPK; i++)
        a->topk_idx[i] = i % FUZZ_EXPERTS;
    CHECK_OK(weft_ep_create(a->own_comm,
                            WEFT_ARGS(weft_ep_config, .num_experts = FUZZ_EXPERTS,
                                      .max_topk = FUZZ_TOPK, .num_blocks = FUZZ_BLOCKS),
                            &a->own_ep));
    CHECK_OK(weft_ep_handle_create(a->own_ep, &handle, &a->empty_handle));
    CHECK_OK(weft_ep_handle_create(a->own_ep, &handle, &a->ready_handle));
    CHECK_OK(weft_ep_layout(a->ready_handle,
                            WEFT_ARGS(weft_ep_layout_args, .num_tokens = FUZZ_MAX_TOKENS,
                                      .index_type = WEFT_INT64, .topk_idx = a->topk_idx),
                            a->own_stream));
    CHECK_OK(weft_ep_notify(a->ready_handle, a->own_stream));
    CHECK_OK(weft_stream_synchronize(a->own_stream));
    return fuzz_set_up_ll(a);
}

static int set_up(struct ranks_context *context, struct fuzz_arguments *a)
{
    weft_heap_info info = WEFT_INIT(weft_heap_info);
    void *memory;
    const size_t arena_bytes = 1 << 16;
    a->id = context->id;
    CHECK_OK(weft_unique_id_create(&a->own_id));
    CHECK_OK(weft_comm_create(
        &context->id, 0, 1, WEFT_ARGS(weft_comm_config, .heap_max_bytes = 64 << 20), &a->own_comm));
    CHECK_OK(weft_stream_create(a->own_comm, &a->own_stream));
    CHECK_OK(weft_event_create(a->own_comm, &a->own_event));
    CHECK_OK(weft_arena_create(a->own_comm, arena_bytes, &a->own_arena));
    CHECK_OK(weft_arena_alloc(a->own_arena, arena_bytes / 2, &memory));
    CHECK_OK(weft_heap_alloc(a->own_comm, 1, &a->heap_memory));
    CHECK_OK(weft_heap_query(a->own_comm, &info));
    a->arena_memory = memory;
    a->arena_end = a->arena_memory + arena_bytes;
    CHECK_OK(weft_coll_create(a->own_comm, NULL, &a->own_coll));
    return set_up_ep(a);
}

/* Objects of each kind that are no more. */
static int set_up_gone(struct fuzz_arguments *a, struct fuzz_arguments *gone)
{
    weft_ep_config ep = WEFT_INIT(weft_ep_config);
    weft_ep_handle_config handle = WEFT_INIT(weft_ep_handle_config);
    weft_ll_config ll = WEFT_INIT(weft_ll_config);
    ep.num_experts = FUZZ_EXPERTS;
    handle.max_tokens = ll.max_tokens = FUZZ_MAX_TOKENS;
    handle.num_topk = ll.num_topk = FUZZ_TOPK;
    ll.hidden = 1;
    ll.dtype = WEFT_FP32;
    a->gone = gone;
    CHECK_OK(weft_comm_split(a->own_comm, 0, 0, NULL, &gone->comm));
    CHECK_OK(weft_stream_create(gone->comm, &gone->stream));
    CHECK_OK(weft_event_create(gone->comm, &gone->event));
    CHECK_OK(weft_arena_create(gone->comm, 1, &gone->arena));
    CHECK_OK(weft_coll_create(gone->comm, NULL, &gone->coll));
    CHECK_OK(weft_coll_record_begin(gone->coll, &gone->record));
    CHECK_OK(weft_ep_create(gone->comm, &ep, &gone->ep));
    CHECK_OK(weft_ep_handle_create(gone->ep, &handle, &gone->handle));
    CHECK_OK(weft_ll_create(gone->ep, &ll, &gone->ll));
    CHECK_OK(weft_stream_destroy(gone->stream));
    CHECK_OK(weft_event_destroy(gone->event));
    CHECK_OK(weft_comm_destroy(gone->comm)); /* and all that is in it */
    gone->graph = gone->stream;
    return 0;
}

static int tear_down(struct fuzz_arguments *a)
{
    CHECK_OK(weft_ep_handle_destroy(a->ready_handle));
    CHECK_OK(weft_ep_handle_destroy(a->empty_handle));
    CHECK_OK(weft_ep_destroy(a->own_ep));
    CHECK_OK(weft_coll_destroy(a->own_coll));
    CHECK_OK(weft_heap_free(a->own_comm, a->heap_memory));
    CHECK_OK(weft_arena_destroy(a->own_arena));
    CHECK_OK(weft_event_destroy(a->own_event));
    CHECK_OK(weft_stream_destroy(a->own_stream));
    CHECK_OK(weft_comm_destroy(a->own_comm));
    return 0;
}

/* With the objects that stay. */
static void fill(struct fuzz_arguments *a, const struct fuzz_target *target, struct rng *rng)
{
    a->comm = a->own_comm;
    a->stream = a->own_stream;
    a->event = a->own_event;
    a->graph = a->record = (void *)a;
    a->arena = a->own_arena;
    a->ep = a->own_ep;
    a->handle = a->ready_handle;
    a->ll = a->empty_ll;
    a->coll = a->own_coll;
    a->out = &a->created;
    a->created = a->ptr = NULL;
    a->bytes = 1 + rng_below(rng, 5000);
    if (target->fill != NULL)
        target->fill(a, rng);
}

static void *bad_pointer(struct fuzz_arguments *a, enum fuzz_pointer which, size_t offset)
{
    void *gone;
    switch (which) {
    case FUZZ_OUTSIDE:
        return a->outside;
    case FUZZ_LAST_BYTE:
        return a->arena_end - 1;
    case FUZZ_GARBAGE:
        return (void *)(uintptr_t)0x7fffdeadbeef;
    case FUZZ_ALL_ONES:
        return (void *)UINTPTR_MAX;
    case FUZZ_OTHER:
        return offset == FUZZ_AT(coll) ? (void *)a->own_stream : (void *)a->own_coll;
    case FUZZ_GONE:
        memcpy(&gone, (const char *)a->gone + offset, sizeof gone);
        return gone;
    default:
        return NULL;
    }
}

static void mutate(struct fuzz_arguments *a, const struct fuzz_mutation *mutation, int64_t value,
                   struct rng *rng)
{
    char *place = (char *)a + mutation->offset;
    const int32_t narrow = (int32_t)value;
    void *pointer = bad_pointer(a, (enum fuzz_pointer)value, mutation->offset);
    const size_t longer = (size_t)value + FUZZ_TAIL_BYTES;
    switch (mutation->kind) {
    case FUZZ_INT32:
        memcpy(place, &narrow, sizeof narrow);
        break;
    case FUZZ_INT64:
        memcpy(place, &value, sizeof value);
        break;
    case FUZZ_POINTER:
    case FUZZ_PAIRED:
        memcpy(place, &pointer, sizeof pointer);
        break;
    case FUZZ_TAIL:
        memcpy(place, &longer, sizeof longer);
        place[(size_t)value + rng_below(rng, FUZZ_TAIL_BYTES)] = 1;
        break;
    }
}

/* Whether the message names one of the fields. */
static int names_field(const char *message, const char *fields)
{
    char field[64];
    while (*fields != '\0') {
        const size_t length = strcspn(fields, "|");
        snprintf(field, sizeof field, "%.*s", (int)length, fields);
        if (strstr(message, field) != NULL)
            return 1;
        fields += length + (fields[length] == '|');
    }
    return 0;
}

static int names_one(const char *message, const struct fuzz_mutation *const *mutations,
                     uint32_t num_mutations)
{
    for (uint32_t i = 0; i < num_mutations; i++)
        if (names_field(message, mutations[i]->field))
            return 1;
    return 0;
}

static int check_invalid(struct ranks_context *context, weft_result result,
                         const struct fuzz_mutation *const *mutations, uint32_t num_mutations)
{
    const char *call = ((const struct plan *)context->argument)->position->call;
    CHECK(result != WEFT_OK, "%s was accepted", call);
    CHECK(result == WEFT_ERROR_INVALID_ARGUMENT || result == WEFT_ERROR_OUT_OF_MEMORY,
          "%s gave \"%s\"", call, weft_result_string(result));
    CHECK(names_one(weft_last_error(), mutations, num_mutations), "%s: %s", call,
          weft_last_error());
    return 0;
}

/* Applies up to MAX_MUTATIONS of the target's; returns how many. */
static uint32_t mutate_some(struct fuzz_arguments *a, const struct fuzz_target *target,
                            struct rng *rng, const struct fuzz_mutation **mutations)
{
    uint32_t num_mutations = 0;
    int num_paired = 0;
    for (uint32_t i = rng_below(rng, MAX_MUTATIONS + 1); i > 0; i--) {
        const struct fuzz_mutation *mutation =
            &target->mutations[rng_below(rng, (uint32_t)target->num_mutations)];
        if (mutation->kind == FUZZ_PAIRED && num_paired++ > 0)
            continue;
        mutate(a, mutation, mutation->values[rng_below(rng, (uint32_t)mutation->num_values)], rng);
        mutations[num_mutations++] = mutation;
    }
    return num_mutations;
}

static void describe(char call[256], const struct fuzz_target *target,
                     const struct fuzz_mutation *const *mutations, uint32_t num_mutations)
{
    int length = snprintf(call, 256, "%s", target->name);
    for (uint32_t i = 0; i < num_mutations; i++)
        length +=
            snprintf(call + length, 256 - (size_t)length, " with wrong %s", mutations[i]->field);
}

static int iterate(struct ranks_context *context, struct fuzz_arguments *a, struct rng *rng)
{
    struct position *position = ((const struct plan *)context->argument)->position;
    const struct fuzz_mutation *mutations[MAX_MUTATIONS];
    const struct fuzz_target *target =
        fuzz_target((int32_t)rng_below(rng, (uint32_t)fuzz_num_targets()));
    fill(a, target, rng);
    const uint32_t num_mutations = mutate_some(a, target, rng, mutations);
    describe(position->call, target, mutations, num_mutations);
    position->iteration++;
    const weft_result result = target->call(a);
    if (num_mutations > 0)
        return check_invalid(context, result, mutations, num_mutations);
    CHECK(result == WEFT_OK, "%s: %s", position->call, weft_last_error());
    if (target->undo != NULL)
        CHECK_OK(target->undo(a));
    return 0;
}

/* Each value that is wrong, alone. */
static int try_each_mutation(struct ranks_context *context, struct fuzz_arguments *a,
                             const struct fuzz_target *target, struct rng *rng)
{
    struct position *position = ((const struct plan *)context->argument)->position;
    for (int i = 0; i < target->num_mutations; i++) {
        const struct fuzz_mutation *mutation = &target->mutations[i];
        for (int value = 0; value < mutation->num_values; value++) {
            fill(a, target, rng);
            mutate(a, mutation, mutation->values[value], rng);
            describe(position->call, target, &mutation, 1);
            if (check_invalid(context, target->call(a), &mutation, 1))
                return 1;
        }
    }
    return 0;
}

static int fuzz(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct fuzz_arguments *a = tests_alloc(sizeof *a), *gone = tests_alloc(sizeof *gone);
    struct rng rng = {rng_key(plan->seed, 0)};
    if (set_up(context, a) || set_up_gone(a, gone))
        return 1;
    for (int32_t i = 0; i < fuzz_num_targets(); i++)
        if (try_each_mutation(context, a, fuzz_target(i), &rng))
            return 1;
    for (int64_t i = 0; i < plan->num_iterations; i++)
        if (iterate(context, a, &rng))
            return 1;
    if (tear_down(a))
        return 1;
    tests_free(a);
    tests_free(gone);
    return 0;
}

static int fuzz_arguments_of_calls(struct plan *plan)
{
    const struct ranks_options options = {
        .mode = RANKS_PROCESSES, .num_ranks = 1, RANKS_ARGUMENT(plan), .deadline_s = 240};
    const int num_failed = ranks_run_with(&options, fuzz);
    if (num_failed != 0)
        fprintf(stderr, "in iteration %lld: %s\n", (long long)plan->position->iteration,
                plan->position->call);
    return num_failed;
}

static int list_calls(void)
{
    for (int32_t i = 0; i < fuzz_num_targets(); i++)
        puts(fuzz_target(i)->name);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--list") == 0)
        return list_calls();
    struct plan plan = {.seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1,
                        .num_iterations =
                            argc > 2 ? strtoll(argv[2], NULL, 0) : tests_grid_size(200000, 20000),
                        .position = mmap(NULL, sizeof(struct position), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    if (plan.position == MAP_FAILED)
        return 1;
    const int num_failed = fuzz_arguments_of_calls(&plan);
    if (num_failed != 0)
        fprintf(stderr, "failed: seed %llu, %lld iterations\n", (unsigned long long)plan.seed,
                (long long)plan.num_iterations);
    munmap(plan.position, sizeof(struct position));
    return num_failed != 0;
}
