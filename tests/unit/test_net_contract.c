/* SPDX-License-Identifier: MIT */
/* The contract of net/net.h on every engine: random puts, signals and flushes from all to all. A
 * target looks at its bytes whenever a signal word has changed, a source overwrites its own as soon
 * as it may, and looks at the target's when a flush is done. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "net_post.h"
#include "net_world.h"

enum {
    NUM_OPERATIONS = 48, /* from each to each */
    WORDS_PER_SOURCE = NET_MAX_WORDS / NET_MAX_PARTIES,
    GUARD_BYTES = 24,
    GUARD = NET_HEAP_FILL,
    USED = 0xee
};

enum kind { PUT, PUT_SIGNAL, SIGNAL, FLUSH };

enum { NO_WORD = UINT32_MAX };

struct planned {
    enum kind kind;
    uint32_t word, add;
    uint32_t also_word;       /* of a put_signal: another add, of `add`, goes with it; or NO_WORD */
    size_t offset, num_bytes; /* in the source's area of the target's heap */
    uint64_t ordered;         /* value of the source's ordered word after this operation */
};

/* Both ends of a channel know it by heart. */
struct plan {
    struct planned operations[NUM_OPERATIONS];
    size_t num_bytes;
};

struct traffic {
    struct plan out[NET_MAX_PARTIES], in[NET_MAX_PARTIES];
    struct weft__net_request requests[NET_MAX_PARTIES][NUM_OPERATIONS];
    uint8_t is_used[NET_MAX_PARTIES][NUM_OPERATIONS];
    int num_started[NET_MAX_PARTIES], num_ended[NET_MAX_PARTIES];
    int num_seen[NET_MAX_PARTIES], num_flushed[NET_MAX_PARTIES];
    uint8_t has_come[NET_MAX_PARTIES]
                    [NUM_OPERATIONS]; /* a put_signal's bytes have been looked at */
    enum { TRAFFIC, FLUSHING, FLUSHED } phase;
    struct weft__net_request last;
};

static size_t area_bytes(const struct net_world *world)
{
    return world->heap_bytes / (size_t)world->num_ranks;
}

static size_t draw_bytes(uint64_t *random, size_t left_bytes)
{
    static const size_t most[] = {1, 40, 300, 2048, 9000, 70000, 300000, 3 << 20};
    static const uint64_t weights[] = {4, 8, 8, 8, 4, 2, 1, 1};
    uint64_t drawn = net_draw(random, 36);
    size_t class = 0;
    while (drawn >= weights[class])
        drawn -= weights[class ++];
    size_t num_bytes = net_draw(random, most[class] + 1);
    return num_bytes > left_bytes ? left_bytes : num_bytes;
}

static void make_plan(const struct net_world *world, int32_t from, int32_t to, struct plan *plan)
{
    uint64_t random = world->seed * 10007 + (uint64_t)(from * NET_MAX_PARTIES + to);
    uint64_t ordered = 0;
    uint32_t num_words = 1;
    size_t offset = GUARD_BYTES;
    for (int index = 0; index < NUM_OPERATIONS; index++) {
        struct planned *planned = &plan->operations[index];
        static const enum kind kinds[] = {PUT, PUT, PUT, PUT_SIGNAL, SIGNAL, SIGNAL, FLUSH};
        *planned = (struct planned){.kind = kinds[net_draw(&random, 7)],
                                    .add = 1 + (uint32_t)net_draw(&random, 1000),
                                    .also_word = NO_WORD};
        if (planned->kind == PUT_SIGNAL && num_words == WORDS_PER_SOURCE)
            planned->kind = PUT;
        if (planned->kind == PUT || planned->kind == PUT_SIGNAL) {
            size_t left_bytes = area_bytes(world) - offset - GUARD_BYTES;
            planned->offset = offset;
            planned->num_bytes = draw_bytes(&random, left_bytes);
            offset += planned->num_bytes;
            if (offset + 2 * (size_t)GUARD_BYTES < area_bytes(world))
                offset += net_draw(&random, GUARD_BYTES);
        }
        planned->word = (uint32_t)from * WORDS_PER_SOURCE;
        if (planned->kind == PUT_SIGNAL)
            planned->word += num_words++;
        if (planned->kind == PUT_SIGNAL && num_words < WORDS_PER_SOURCE &&
            net_draw(&random, 2) == 0)
            planned->also_word = (uint32_t)from * WORDS_PER_SOURCE + num_words++;
        if (planned->kind == SIGNAL)
            ordered += planned->add;
        planned->ordered = ordered;
    }
    plan->num_bytes = offset;
}

static unsigned char value_at(int32_t from, int32_t to, int index, size_t byte)
{
    size_t mixed = (size_t)(from * 31 + to * 17 + index * 101) + byte * 7 + (byte >> 9);
    return (unsigned char)(mixed & 0x7f); /* neither GUARD nor USED */
}

/* ---------------------------------------------------------------- looking */

static enum net_verdict look_at_put(const struct net_party *party, int32_t from, int32_t to,
                                    const struct plan *plan, int index, const char *after)
{
    const struct planned *planned = &plan->operations[index];
    const unsigned char *bytes =
        net_heap(party, to) + (size_t)from * area_bytes(party->world) + planned->offset;
    for (size_t byte = 0; byte < planned->num_bytes; byte++)
        if (bytes[byte] != value_at(from, to, index, byte))
            return net_fail(party,
                            "after %s: byte %zu of %zu of operation %d from %d to %d is 0x%02x",
                            after, byte, planned->num_bytes, index, from, to, bytes[byte]);
    return NET_AGAIN;
}

static enum net_verdict look_at_puts(const struct net_party *party, int32_t from, int32_t to,
                                     const struct plan *plan, int begin, int end, const char *after)
{
    enum net_verdict verdict = NET_AGAIN;
    for (int index = begin; index < end && verdict == NET_AGAIN; index++)
        if (plan->operations[index].kind == PUT || plan->operations[index].kind == PUT_SIGNAL)
            verdict = look_at_put(party, from, to, plan, index, after);
    return verdict;
}

/* As the target: what the ordered word of a source says. */
static enum net_verdict look_at_ordered(struct net_party *party, int32_t from)
{
    struct traffic *traffic = party->own;
    const struct plan *plan = &traffic->in[from];
    uint64_t value =
        atomic_load_explicit(&party->words[from * WORDS_PER_SOURCE], memory_order_acquire);
    int begin = traffic->num_seen[from], end = begin;
    uint64_t seen = begin > 0 ? plan->operations[begin - 1].ordered : 0;
    while (end < NUM_OPERATIONS && seen != value) {
        seen = plan->operations[end].ordered;
        end++;
    }
    if (seen != value)
        return net_fail(party, "ordered word of rank %d is %llu, which is no sum of its signals",
                        from, (unsigned long long)value);
    traffic->num_seen[from] = end;
    return look_at_puts(party, from, party->rank, plan, begin, end, "signal");
}

static enum net_verdict look_at_also_word(struct net_party *party, const struct planned *planned,
                                          int *num_left)
{
    if (planned->also_word == NO_WORD)
        return NET_AGAIN;
    uint64_t value = atomic_load(&party->words[planned->also_word]);
    *num_left += value == 0;
    if (value == 0 || value == planned->add)
        return NET_AGAIN;
    return net_fail(party, "word %u, of an add that went along, is %llu; it must be %u",
                    planned->also_word, (unsigned long long)value, planned->add);
}

static enum net_verdict look_at_own_words(struct net_party *party, int32_t from, int *num_left)
{
    struct traffic *traffic = party->own;
    const struct plan *plan = &traffic->in[from];
    enum net_verdict verdict = NET_AGAIN;
    for (int index = 0; index < NUM_OPERATIONS && verdict == NET_AGAIN; index++) {
        const struct planned *planned = &plan->operations[index];
        if (planned->kind != PUT_SIGNAL)
            continue;
        uint64_t value = atomic_load_explicit(&party->words[planned->word], memory_order_acquire);
        if (value == 0)
            (*num_left)++;
        else if (value != planned->add)
            return net_fail(party, "word %u is %llu; it must be %u", planned->word,
                            (unsigned long long)value, planned->add);
        else if (!traffic->has_come[from][index])
            verdict = look_at_put(party, from, party->rank, plan, index, "its signal");
        traffic->has_come[from][index] = value != 0;
        if (verdict == NET_AGAIN)
            verdict = look_at_also_word(party, planned, num_left);
    }
    return verdict;
}

static enum net_verdict look_at_gaps(const struct net_party *party)
{
    const struct traffic *traffic = party->own;
    for (int32_t from = 0; from < party->num_ranks; from++) {
        if (from == party->rank)
            continue;
        const unsigned char *area = party->heap + (size_t)from * area_bytes(party->world);
        size_t offset = 0;
        for (int index = 0; index <= NUM_OPERATIONS; index++) {
            const struct planned *planned = &traffic->in[from].operations[index];
            int is_last = index == NUM_OPERATIONS;
            if (!is_last && planned->kind != PUT && planned->kind != PUT_SIGNAL)
                continue;
            size_t end = is_last ? area_bytes(party->world) : planned->offset;
            for (; offset < end; offset++)
                if (area[offset] != GUARD)
                    return net_fail(party, "byte %zu of rank %d's area was written", offset, from);
            offset = is_last ? end : planned->offset + planned->num_bytes;
        }
    }
    return NET_AGAIN;
}

/* As the source: everything before a flush must be visible at the target. */
static enum net_verdict look_after_flush(struct net_party *party, int32_t to, int end)
{
    struct traffic *traffic = party->own;
    int begin = traffic->num_flushed[to]; /* what was there then stays */
    const struct plan *plan = &traffic->out[to];
    const _Atomic uint64_t *words = party->shared->words[to];
    uint64_t expected = end > 0 ? plan->operations[end - 1].ordered : 0;
    uint64_t value =
        atomic_load_explicit(&words[party->rank * WORDS_PER_SOURCE], memory_order_acquire);
    if (value < expected)
        return net_fail(party, "after a flush rank %d's ordered word is %llu of %llu", to,
                        (unsigned long long)value, (unsigned long long)expected);
    for (int index = 0; index < end; index++) {
        const struct planned *planned = &plan->operations[index];
        if (planned->kind == PUT_SIGNAL &&
            (atomic_load(&words[planned->word]) != planned->add ||
             (planned->also_word != NO_WORD &&
              atomic_load(&words[planned->also_word]) != planned->add)))
            return net_fail(party, "after a flush word %u or %u of rank %d has not come",
                            planned->word, planned->also_word, to);
    }
    traffic->num_flushed[to] = begin > end ? begin : end;
    return look_at_puts(party, party->rank, to, plan, begin, end, "flush");
}

/* ---------------------------------------------------------------- the scenario */

static void *begin(struct net_party *party)
{
    struct traffic *traffic = calloc(1, sizeof(*traffic));
    for (int32_t rank = 0; traffic != NULL && rank < party->num_ranks; rank++) {
        if (rank == party->rank)
            continue;
        make_plan(party->world, party->rank, rank, &traffic->out[rank]);
        make_plan(party->world, rank, party->rank, &traffic->in[rank]);
        for (int index = 0; index < NUM_OPERATIONS; index++) {
            const struct planned *planned = &traffic->out[rank].operations[index];
            unsigned char *bytes =
                party->staging + (size_t)rank * area_bytes(party->world) + planned->offset;
            for (size_t byte = 0; byte < planned->num_bytes; byte++)
                bytes[byte] = value_at(party->rank, rank, index, byte);
        }
    }
    return traffic;
}

static weft_result start_operation(struct net_party *party, int32_t to, int index)
{
    struct traffic *traffic = party->own;
    const struct planned *planned = &traffic->out[to].operations[index];
    struct weft__net_request *request = &traffic->requests[to][index];
    const size_t area = area_bytes(party->world);
    const struct wp_access put = {
        .rank = to,
        .source = weft__net_place(1, (uint64_t)to * area + planned->offset),
        .target = weft__net_place(0, (uint64_t)party->rank * area + planned->offset),
        .num_bytes = planned->num_bytes,
        .word = net_word(planned->word),
        .add = planned->add};
    const struct wp_access also = {
        .rank = to, .word = net_word(planned->also_word), .add = planned->add};
    switch (planned->kind) {
    case PUT:
        return net_post_as(WP_ACCESS_PUT, party->net, &put, request);
    case PUT_SIGNAL:
        return planned->also_word != NO_WORD
                   ? weft__net_post_both(party->net, &put, &also, request)
                   : net_post_as(WP_ACCESS_PUT_SIGNAL, party->net, &put, request);
    case SIGNAL:
        return net_signal(party->net, to, net_word(planned->word), planned->add);
    default:
        return net_flush(party->net, to, request);
    }
}

/* The next operation to a peer that is drawn; NET_IDLE if there is none any more. */
static enum net_verdict start_one(struct net_party *party)
{
    struct traffic *traffic = party->own;
    int32_t to = (int32_t)net_draw(&party->random, (uint64_t)party->num_ranks);
    for (int32_t tried = 0; tried < party->num_ranks; tried++, to = (to + 1) % party->num_ranks) {
        if (to == party->rank || traffic->num_started[to] == NUM_OPERATIONS)
            continue;
        if (start_operation(party, to, traffic->num_started[to]) != WEFT_OK)
            return net_fail(party, "operation %d to %d: %s", traffic->num_started[to], to,
                            weft__last_error());
        traffic->num_started[to]++;
        return NET_AGAIN;
    }
    return NET_IDLE;
}

/* When a request is done: uses the source's memory again, or looks what was flushed. */
static enum net_verdict end_one(struct net_party *party, int32_t to, int index)
{
    struct traffic *traffic = party->own;
    const struct planned *planned = &traffic->out[to].operations[index];
    if (traffic->requests[to][index].result != WEFT_OK)
        return net_fail(party, "operation %d to %d failed", index, to);
    traffic->is_used[to][index] = 1;
    traffic->num_ended[to]++;
    if (planned->kind == FLUSH)
        return look_after_flush(party, to, index);
    if (planned->kind != SIGNAL)
        memset(party->staging + (size_t)to * area_bytes(party->world) + planned->offset, USED,
               planned->num_bytes);
    return NET_AGAIN;
}

static enum net_verdict end_those_done(struct net_party *party, int *num_left)
{
    struct traffic *traffic = party->own;
    enum net_verdict verdict = NET_AGAIN;
    for (int32_t to = 0; to < party->num_ranks; to++) {
        if (to == party->rank)
            continue;
        for (int index = 0; index < traffic->num_started[to] && verdict == NET_AGAIN; index++)
            if (!traffic->is_used[to][index] && weft__net_is_done(&traffic->requests[to][index]))
                verdict = end_one(party, to, index);
        *num_left += NUM_OPERATIONS - traffic->num_ended[to];
    }
    return verdict;
}

static enum net_verdict look_around(struct net_party *party, int *num_left)
{
    const struct traffic *traffic = party->own;
    enum net_verdict verdict = NET_AGAIN;
    for (int32_t from = 0; from < party->num_ranks && verdict == NET_AGAIN; from++) {
        if (from == party->rank)
            continue;
        verdict = look_at_ordered(party, from);
        if (verdict == NET_AGAIN)
            verdict = look_at_own_words(party, from, num_left);
        uint64_t all = traffic->in[from].operations[NUM_OPERATIONS - 1].ordered;
        *num_left += atomic_load(&party->words[from * WORDS_PER_SOURCE]) != all;
    }
    return verdict;
}

static enum net_verdict flush_at_last(struct net_party *party)
{
    struct traffic *traffic = party->own;
    enum net_verdict verdict = NET_AGAIN;
    if (traffic->phase == TRAFFIC) {
        traffic->phase = FLUSHING;
        if (net_flush(party->net, WEFT__NET_ALL_PEERS, &traffic->last) != WEFT_OK)
            return net_fail(party, "the last flush: %s", weft__last_error());
    }
    if (traffic->phase == FLUSHING && weft__net_is_done(&traffic->last)) {
        traffic->phase = FLUSHED;
        for (int32_t to = 0; to < party->num_ranks && verdict == NET_AGAIN; to++)
            if (to != party->rank)
                verdict = look_after_flush(party, to, NUM_OPERATIONS);
    }
    return verdict;
}

static enum net_verdict step(struct net_party *party)
{
    const struct traffic *traffic = party->own;
    int num_left = 0;
    const enum net_verdict started = start_one(party);
    enum net_verdict verdict = started;
    if (verdict != NET_FAILED)
        verdict = end_those_done(party, &num_left);
    if (verdict == NET_AGAIN && num_left == 0)
        verdict = flush_at_last(party);
    if (verdict == NET_AGAIN)
        verdict = look_around(party, &num_left);
    if (verdict == NET_FAILED)
        return NET_FAILED;
    if (num_left > 0 || traffic->phase != FLUSHED)
        return started;
    return look_at_gaps(party) == NET_FAILED ? NET_FAILED : NET_PASSED;
}

/* ---------------------------------------------------------------- engines */

static void run(struct net_world world)
{
    world.begin = begin;
    world.step = step;
    world.end = free;
    world.victim = NET_NO_VICTIM;
    if (world.by_writes == 0 && world.growing == 0)
        world.on_device = (uint32_t)world.seed % 8; /* all combinations */
    world.staging_bytes = world.heap_bytes;
    assert_int_equal(net_world_run(&world), 0);
}

TEST(fake_keeps_the_contract)
{
    for (uint64_t seed = 1; seed <= (uint64_t)tests_grid_size(40, 10); seed++)
        run((struct net_world){.engine = "fake",
                               .seed = seed,
                               .num_ranks = 2 + (int32_t)(seed % 4),
                               .heap_bytes = 256 * 1024,
                               .max_message_bytes = seed % 3 == 0 ? 64 : 0,
                               .max_delay = seed % 2 == 0 ? 300 : 20,
                               .full_one_in = seed % 5 == 0 ? 3 : 0});
}

/* Heap and staging, between which all puts go. */
enum { DEVICE_REGIONS = 1 << 0 | 1 << 1, GROWING_REGIONS = DEVICE_REGIONS };

TEST(fake_writes_devices)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        run((struct net_world){.engine = "fake",
                               .seed = seed,
                               .num_ranks = 2 + (int32_t)(seed % 4),
                               .heap_bytes = 256 * 1024,
                               .by_writes = DEVICE_REGIONS,
                               .max_delay = seed % 2 == 0 ? 300 : 20});
}

/* Steps that the engine writes to, of heaps and what is sent, become known while all put. */
TEST(fake_writes_what_has_grown)
{
    for (uint64_t seed = 1; seed <= (uint64_t)tests_grid_size(20, 5); seed++)
        run((struct net_world){.engine = "fake",
                               .seed = seed,
                               .num_ranks = 2 + (int32_t)(seed % 4),
                               .heap_bytes = 256 * 1024,
                               .growing = GROWING_REGIONS,
                               .max_delay = seed % 2 == 0 ? 300 : 20});
}

static void run_engine(const char *engine)
{
    const uint64_t first = (uint64_t)tests_grid_size(4, 7), last = (uint64_t)tests_grid_size(8, 7);
    for (uint64_t seed = first; seed <= last; seed++)
        run((struct net_world){.engine = engine,
                               .seed = seed,
                               .num_ranks = seed == 8 ? 12 : 2 + (int32_t)(seed % 3),
                               .heap_bytes =
                                   seed == 8 ? 2 << 20 : (uint64_t)tests_grid_size(9, 2) << 20});
}

TEST_CALL(tcp_keeps_the_contract, run_engine("tcp"))

TEST(ucx_keeps_the_contract)
{
    if (!net_engine_is_there("ucx"))
        skip();
    const uint64_t first = (uint64_t)tests_grid_size(4, 7), last = (uint64_t)tests_grid_size(8, 7);
    for (uint64_t seed = first; seed <= last; seed++)
        run((struct net_world){.engine = "ucx",
                               .transports = "tcp",
                               .seed = seed,
                               .num_ranks = seed == 8 ? 6 : 2 + (int32_t)(seed % 3),
                               .heap_bytes =
                                   seed == 8 ? 2 << 20 : (uint64_t)tests_grid_size(9, 2) << 20,
                               /* As newer versions of UCX have it: puts and flushes. */
                               .min_write_bytes = seed % 2 == 0 ? 8000 : 0});
}

TEST(ucx_writes_devices)
{
    if (!net_engine_is_there("ucx"))
        skip();
    run((struct net_world){.engine = "ucx",
                           .transports = "tcp",
                           .seed = 1,
                           .num_ranks = 3,
                           .heap_bytes = 2 << 20,
                           .by_writes = DEVICE_REGIONS,
                           .min_write_bytes = 8000});
}

TEST(ucx_writes_what_has_grown)
{
    if (!net_engine_is_there("ucx"))
        skip();
    for (uint64_t seed = 1; seed <= 2; seed++)
        run((struct net_world){.engine = "ucx",
                               .transports = "tcp",
                               .seed = seed,
                               .num_ranks = 3,
                               .heap_bytes = 2 << 20,
                               .growing = GROWING_REGIONS,
                               .min_write_bytes = 8000});
}
