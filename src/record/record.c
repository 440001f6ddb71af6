/* SPDX-License-Identifier: MIT */
#include "record/record.h"

#include <stdlib.h>

enum { RECORD_WORDS = sizeof(struct weft__record) / sizeof(uint64_t) };
_Static_assert(sizeof(struct weft__record) % sizeof(uint64_t) == 0, "records are whole words");
_Static_assert(sizeof(struct weft__peer_counters) % sizeof(uint64_t) == 0, "counters are words");

/* Words are read while they are written, so all accesses are atomic. The first one is the id: with
 * the bit TAKEN while a thread writes times, and TAKEN alone while one enters a new record. */
#define TAKEN (UINT64_C(1) << 63)
union slot {
    struct weft__record record;
    uint64_t words[RECORD_WORDS];
};

struct weft__records {
    struct weft__records_size size;
    _Atomic uint64_t num_issued;
    struct weft__peer_counters *peers; /* [num_ranks] */
    struct weft__call_counters *calls; /* [num_calls] */
    union slot slots[];
};

struct weft__records *weft__records_create(struct weft__records_size size)
{
    struct weft__records *records =
        calloc(1, sizeof *records + (size_t)size.num_records * sizeof *records->slots);
    if (records == NULL)
        return NULL;
    records->size = size;
    records->peers = calloc((size_t)size.num_ranks, sizeof *records->peers);
    records->calls = calloc((size_t)size.num_calls, sizeof *records->calls);
    if (records->peers != NULL && records->calls != NULL)
        return records;
    weft__records_destroy(records);
    return NULL;
}

void weft__records_destroy(struct weft__records *records)
{
    if (records == NULL)
        return;
    free(records->peers);
    free(records->calls);
    free(records);
}

static void add(uint64_t *counter, uint64_t value)
{
    if (value > 0)
        __atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

static union slot *slot_of(struct weft__records *records, uint64_t id)
{
    return &records->slots[id % (uint64_t)records->size.num_records];
}

/* The record, for its times, until it is given back; NULL: a newer one has its slot. */
static struct weft__record *take(struct weft__records *records, uint64_t id)
{
    union slot *slot = records != NULL && id != 0 ? slot_of(records, id) : NULL;
    uint64_t expected = id;
    return slot != NULL && __atomic_compare_exchange_n(&slot->words[0], &expected, id | TAKEN, 0,
                                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
               ? &slot->record
               : NULL;
}

static void give_back(struct weft__record *record, uint64_t id)
{
    __atomic_store_n(&record->id, id, __ATOMIC_RELEASE);
}

void weft__records_add_runs(struct weft__records *records, int32_t call_idx, uint64_t num_runs,
                            uint64_t num_bytes)
{
    add(&records->calls[call_idx].num_issued, num_runs);
    add(&records->calls[call_idx].num_bytes, num_bytes);
}

uint64_t weft__records_issue(struct weft__records *records, const struct weft__record *record)
{
    if (records == NULL)
        return 0;
    union slot copy = {.record = *record};
    struct weft__call_counters *counters = &records->calls[record->call_idx];
    __atomic_store_n(&counters->call, record->call, __ATOMIC_RELAXED);
    if (record->state != WEFT__RECORD_CAPTURED)
        weft__records_add_runs(records, record->call_idx, 1, record->num_bytes);
    const uint64_t id =
        atomic_fetch_add_explicit(&records->num_issued, 1, memory_order_relaxed) + 1;
    union slot *slot = slot_of(records, id);
    uint64_t older = __atomic_load_n(&slot->words[0], __ATOMIC_RELAXED);
    /* Nobody waits: while another thread writes in the slot, which is rare, this record is lost. */
    if (older > id || !__atomic_compare_exchange_n(&slot->words[0], &older, TAKEN, 0,
                                                   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return id;
    /* Pairs with the acquire fence of a reader: who sees a word of this record sees no older id. */
    atomic_thread_fence(memory_order_release);
    for (int i = 1; i < RECORD_WORDS; i++)
        __atomic_store_n(&slot->words[i], copy.words[i], __ATOMIC_RELAXED);
    __atomic_store_n(&slot->words[0], id, __ATOMIC_RELEASE);
    return id;
}

void weft__records_start(struct weft__records *records, uint64_t id, int64_t now_ns)
{
    struct weft__record *record = take(records, id);
    if (record == NULL)
        return;
    __atomic_store_n(&record->started_ns, now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&record->ended_ns, 0, __ATOMIC_RELAXED); /* of its last run */
    __atomic_store_n(&record->state, WEFT__RECORD_RUNNING, __ATOMIC_RELEASE);
    give_back(record, id);
}

void weft__records_forget_start(struct weft__records *records, uint64_t id)
{
    struct weft__record *record = take(records, id);
    if (record == NULL)
        return;
    if (__atomic_load_n(&record->state, __ATOMIC_RELAXED) == WEFT__RECORD_RUNNING) {
        __atomic_store_n(&record->started_ns, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&record->state, WEFT__RECORD_ISSUED, __ATOMIC_RELEASE);
    }
    give_back(record, id);
}

static void count_end(struct weft__records *records, const struct weft__record *end)
{
    struct weft__call_counters *counters = &records->calls[end->call_idx];
    add(&counters->num_failed, end->state == WEFT__RECORD_FAILED);
    add(&counters->waited_ns, (uint64_t)end->waited_ns);
    if (end->state == WEFT__RECORD_DONE && end->late_ns > 0) {
        add(&records->peers[end->last_rank].num_last, 1);
        add(&records->peers[end->last_rank].late_ns, (uint64_t)end->late_ns);
    }
}

void weft__records_end(struct weft__records *records, uint64_t id, const struct weft__record *end)
{
    if (records == NULL || id == 0)
        return;
    count_end(records, end);
    struct weft__record *record = take(records, id);
    if (record == NULL)
        return;
    __atomic_store_n(&record->ended_ns, end->ended_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&record->waited_ns, end->waited_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&record->late_ns, end->late_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&record->last_rank, end->last_rank, __ATOMIC_RELAXED);
    /* Pairs with the acquire of a reader: an operation that has ended has its times. */
    __atomic_store_n(&record->state, end->state, __ATOMIC_RELEASE);
    give_back(record, id);
}

struct weft__peer_counters *weft__records_peers(struct weft__records *records)
{
    return records != NULL ? records->peers : NULL;
}

int64_t weft__wait_bucket_ns(int32_t bucket)
{
    return bucket < WEFT__NUM_WAIT_BUCKETS - 1 ? INT64_C(1000) << bucket : INT64_MAX;
}

void weft__records_add_wait(struct weft__records *records, int32_t rank, int64_t waited_ns)
{
    struct weft__peer_counters *peer = &records->peers[rank];
    int32_t bucket = 0;
    while (waited_ns > weft__wait_bucket_ns(bucket))
        bucket++;
    add(&peer->num_waits, 1);
    add(&peer->waited_ns, (uint64_t)waited_ns);
    add(&peer->buckets[bucket], 1);
}

/* ---------------------------------------------------------------- reading */

struct weft__record_range weft__records_range(const struct weft__records *records)
{
    const uint64_t last =
        records != NULL ? atomic_load_explicit(&records->num_issued, memory_order_acquire) : 0;
    const uint64_t num_slots = records != NULL ? (uint64_t)records->size.num_records : 0;
    return (struct weft__record_range){last > num_slots ? last - num_slots + 1 : 1, last};
}

int weft__records_read(const struct weft__records *records, uint64_t id,
                       struct weft__record *record)
{
    const union slot *slot = &records->slots[id % (uint64_t)records->size.num_records];
    union slot copy;
    if ((__atomic_load_n(&slot->words[0], __ATOMIC_ACQUIRE) & ~TAKEN) != id)
        return 0;
    const int32_t state = __atomic_load_n(&slot->record.state, __ATOMIC_ACQUIRE);
    for (int i = 0; i < RECORD_WORDS; i++)
        copy.words[i] = __atomic_load_n(&slot->words[i], __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_acquire);
    *record = copy.record;
    record->id = id;
    record->state = state;
    return (__atomic_load_n(&slot->words[0], __ATOMIC_RELAXED) & ~TAKEN) == id;
}

void weft__records_peer(const struct weft__records *records, int32_t rank,
                        struct weft__peer_counters *counters)
{
    enum { WORDS = sizeof *counters / sizeof(uint64_t) };
    *counters = (struct weft__peer_counters){0};
    const uint64_t *from = records != NULL ? &records->peers[rank].num_waits : NULL;
    uint64_t *to = &counters->num_waits;
    for (int i = 0; from != NULL && i < WORDS; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

struct weft__call_counters weft__records_call(const struct weft__records *records, int32_t idx)
{
    const struct weft__call_counters *from = &records->calls[idx];
    return (struct weft__call_counters){
        .call = __atomic_load_n(&from->call, __ATOMIC_RELAXED),
        .num_issued = __atomic_load_n(&from->num_issued, __ATOMIC_RELAXED),
        .num_failed = __atomic_load_n(&from->num_failed, __ATOMIC_RELAXED),
        .num_bytes = __atomic_load_n(&from->num_bytes, __ATOMIC_RELAXED),
        .waited_ns = __atomic_load_n(&from->waited_ns, __ATOMIC_RELAXED)};
}

void weft__records_totals(const struct weft__records *records, struct weft__record_totals *totals)
{
    *totals = (struct weft__record_totals){.num_issued = 0};
    for (int32_t i = 0; i < weft__records_num_calls(records); i++) {
        const struct weft__call_counters call = weft__records_call(records, i);
        totals->num_issued += call.num_issued;
        totals->num_failed += call.num_failed;
        totals->num_bytes += call.num_bytes;
        totals->waited_ns += call.waited_ns;
    }
}

int32_t weft__records_num_ranks(const struct weft__records *records)
{
    return records->size.num_ranks;
}

int32_t weft__records_num_calls(const struct weft__records *records)
{
    return records != NULL ? records->size.num_calls : 0;
}
