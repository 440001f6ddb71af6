/* SPDX-License-Identifier: MIT */
#include "record/record_slots.h"

#include <stdlib.h>

#include "record/record.h"

_Static_assert(sizeof(struct weft__record_slot) == 64, "kernels and hosts agree");

enum {
    NUM = WEFT__NUM_RECORD_SLOTS,
    LEAST_NS = 20000 /* shorter waits and lateness may as well be in how an operation ends */
};

/* Of an operation that has ended on this rank: what the slots of the ranks say of it. */
struct comparison {
    enum { NOT_NEW, ALL_KNOWN, NOT_KNOWN, ENDS_SOON /* on another rank */ } state;
    int32_t num_ranks;
    int32_t last_rank;
    uint64_t shortest, second; /* times in it */
};

/* At the slots of the other ranks. Once more if some are about to end; they may also be stuck. */
enum look { FIRST_LOOK, SECOND_LOOK };

struct seen {
    uint64_t record_id, started; /* of the slot, which stores them together */
    int is_folded;
};

struct weft__record_fold {
    struct weft__records *records;
    int64_t offset_ns;
    struct weft__record_slot own[NUM], other[NUM];
    struct comparison comparisons[NUM];
    struct seen seen[NUM];
    struct weft__call_runs *runs; /* as they were the last time */
};

struct weft__record_fold *weft__record_fold_create(struct weft__records *records, int64_t offset_ns)
{
    struct weft__record_fold *fold = calloc(1, sizeof *fold);
    if (fold == NULL)
        return NULL;
    fold->records = records;
    fold->offset_ns = offset_ns;
    fold->runs = calloc((size_t)weft__records_num_calls(records), sizeof *fold->runs);
    if (fold->runs != NULL)
        return fold;
    free(fold);
    return NULL;
}

void weft__record_fold_destroy(struct weft__record_fold *fold)
{
    if (fold == NULL)
        return;
    free(fold->runs);
    free(fold);
}

/* ---------------------------------------------------------------- one slot */

static int has_ended(const struct weft__record_slot *slot)
{
    return slot->num_running == 0 && slot->ended >= slot->started;
}

/* A slot that is read while it is written may have the old operation with the new id, but then it
 * has not ended. */
static int is_new(const struct weft__record_fold *fold, int i)
{
    const struct weft__record_slot *slot = &fold->own[i];
    const struct seen *seen = &fold->seen[i];
    return slot->record_id != 0 && (seen->record_id != slot->record_id ||
                                    seen->started != slot->started || !seen->is_folded);
}

static void add_time(struct comparison *comparison, int32_t rank,
                     const struct weft__record_slot *slot)
{
    const uint64_t time = slot->ended - slot->started;
    comparison->num_ranks++;
    if (time < comparison->shortest) {
        comparison->second = comparison->shortest;
        comparison->shortest = time;
        comparison->last_rank = rank;
    } else if (time < comparison->second) {
        comparison->second = time;
    }
}

static int begin_comparison(struct weft__record_fold *fold, int i, int32_t rank)
{
    const struct weft__record_slot *slot = &fold->own[i];
    struct comparison *comparison = &fold->comparisons[i];
    *comparison = (struct comparison){.shortest = UINT64_MAX, .second = UINT64_MAX};
    if (!is_new(fold, i) || !has_ended(slot) || slot->operation == 0)
        return 0;
    comparison->state = ALL_KNOWN;
    add_time(comparison, rank, slot);
    return 1;
}

/* ---------------------------------------------------------------- the other ranks */

/* Mostly as far from the own slot as the last one that was found. NULL: it is not there any more.
 */
static const struct weft__record_slot *find_other(const struct weft__record_fold *fold, int i,
                                                  int *distance)
{
    for (int k = 0; k < NUM; k++) {
        const struct weft__record_slot *other = &fold->other[(i + *distance + k) % NUM];
        if (other->operation != fold->own[i].operation)
            continue;
        *distance = (*distance + k) % NUM;
        return other;
    }
    return NULL;
}

static void compare(struct weft__record_fold *fold, int i, int32_t rank, int *distance)
{
    struct comparison *comparison = &fold->comparisons[i];
    const struct weft__record_slot *own = &fold->own[i], *other;
    if (comparison->state == NOT_NEW || comparison->state == NOT_KNOWN)
        return;
    other = find_other(fold, i, distance);
    if (other == NULL ||
        ((own->operation & WEFT__RECORD_IS_REPLAYED) != 0 && own->num_runs != other->num_runs))
        comparison->state = NOT_KNOWN;
    else if (!has_ended(other))
        comparison->state = ENDS_SOON;
    else
        add_time(comparison, rank, other);
}

static void compare_all(struct weft__record_fold *fold, const struct weft__slot_source *source)
{
    int num_new = 0;
    for (int i = 0; i < NUM; i++)
        num_new += begin_comparison(fold, i, source->rank);
    for (int32_t rank = 0; rank < source->num_ranks && num_new > 0; rank++) {
        int distance = 0;
        const int found =
            rank == source->rank ? 0 : source->read_slots(source->context, rank, fold->other);
        for (int i = 0; found != 0 && i < NUM; i++)
            if (found > 0)
                compare(fold, i, rank, &distance);
            else if (fold->comparisons[i].state != NOT_NEW)
                fold->comparisons[i].state = NOT_KNOWN;
    }
}

/* ---------------------------------------------------------------- into the records */

static int64_t host_ns(const struct weft__record_fold *fold, uint64_t device_ns)
{
    return (int64_t)device_ns + fold->offset_ns;
}

/* Clocks drift apart. */
static void correct_clock(struct weft__record_fold *fold, int i, const struct weft__record *record,
                          int64_t now_ns)
{
    const struct weft__record_slot *slot = &fold->own[i];
    const int64_t early_ns = record->issued_ns - host_ns(fold, slot->started);
    if (early_ns > 0)
        fold->offset_ns += early_ns;
    if (has_ended(slot) && host_ns(fold, slot->ended) > now_ns)
        fold->offset_ns -= host_ns(fold, slot->ended) - now_ns;
}

/* Who came last, and what that meant for this rank. */
static void add_lateness(const struct comparison *comparison, const struct weft__record_slot *slot,
                         struct weft__record *end)
{
    const int64_t waited_ns = (int64_t)(slot->ended - slot->started - comparison->shortest);
    const int64_t late_ns = (int64_t)(comparison->second - comparison->shortest);
    if (comparison->state != ALL_KNOWN || comparison->num_ranks < 2 ||
        waited_ns + late_ns < LEAST_NS)
        return;
    end->last_rank = comparison->last_rank;
    end->waited_ns = waited_ns >= LEAST_NS ? waited_ns : 0;
    end->late_ns = late_ns >= LEAST_NS ? late_ns : 0;
}

static void end_record(struct weft__record_fold *fold, int i, int32_t call_idx)
{
    const struct weft__record_slot *slot = &fold->own[i];
    struct weft__record end = {.ended_ns = host_ns(fold, slot->ended),
                               .last_rank = WEFT__RECORD_NOBODY,
                               .state = WEFT__RECORD_DONE,
                               .call_idx = call_idx};
    if (slot->failed_id == slot->record_id)
        end.state = WEFT__RECORD_FAILED;
    else
        add_lateness(&fold->comparisons[i], slot, &end);
    if (end.waited_ns > 0)
        weft__records_add_wait(fold->records, end.last_rank, end.waited_ns);
    weft__records_end(fold->records, slot->record_id, &end);
}

/* Returns whether a second look at the other ranks would tell more. */
static int fold_slot(struct weft__record_fold *fold, int i, enum look look, int64_t now_ns)
{
    const struct weft__record_slot *slot = &fold->own[i];
    struct seen *seen = &fold->seen[i];
    struct weft__record record;
    if (slot->record_id != seen->record_id && seen->record_id != 0 && !seen->is_folded)
        weft__records_forget_start(fold->records, seen->record_id);
    /* Whoever hears of a failure has written it. */
    if (!is_new(fold, i) || !weft__records_read(fold->records, slot->record_id, &record) ||
        record.state == WEFT__RECORD_FAILED)
        return 0;
    if (seen->record_id != slot->record_id || seen->started != slot->started)
        *seen = (struct seen){.record_id = slot->record_id, .started = slot->started};
    correct_clock(fold, i, &record, now_ns);
    const int is_left = fold->comparisons[i].state == ENDS_SOON && look == FIRST_LOOK;
    seen->is_folded = has_ended(slot) && !is_left;
    weft__records_start(fold->records, slot->record_id, host_ns(fold, slot->started));
    if (seen->is_folded)
        end_record(fold, i, record.call_idx);
    return is_left;
}

/* Returns how many slots are left for a second look. */
static int compare_and_fold(struct weft__record_fold *fold, const struct weft__slot_source *source,
                            enum look look, int64_t now_ns)
{
    int num_left = 0;
    compare_all(fold, source);
    for (int i = 0; i < NUM; i++)
        num_left += fold_slot(fold, i, look, now_ns);
    return num_left;
}

void weft__record_fold_slots(struct weft__record_fold *fold, const struct weft__slot_source *source)
{
    /* Before the others', so that what has ended here has mostly ended there. */
    if (source->read_slots(source->context, source->rank, fold->own) <= 0)
        return;
    const int64_t now_ns = source->now_ns();
    if (compare_and_fold(fold, source, FIRST_LOOK, now_ns) > 0)
        compare_and_fold(fold, source, SECOND_LOOK, now_ns);
}

void weft__record_fold_runs(struct weft__record_fold *fold, const struct weft__call_runs *runs)
{
    for (int32_t call = 0; call < weft__records_num_calls(fold->records); call++) {
        weft__records_add_runs(fold->records, call, runs[call].num_runs - fold->runs[call].num_runs,
                               runs[call].num_bytes - fold->runs[call].num_bytes);
        fold->runs[call] = runs[call];
    }
}
