/* SPDX-License-Identifier: MIT */
/* Records of launches (record/record_slots.h): slots in the heap, which the other ranks can read,
 * and counters of what graphs have run in memory of the device. */
#include <stdlib.h>

#include "comm/host/thread.h"
#include "machine/cuda/device.h"

enum { EXCHANGE_BIT = 40 /* of an operation, above its number */ };

struct weft__cuda_records {
    pthread_mutex_t mutex; /* of the next one */
    struct weft__record_fold *fold;
    struct weft__call_runs *runs; /* [WEFT__NUM_CALLS] of the device */
};

static struct weft__record_slot *slots_of(const weft_comm *comm, int32_t rank)
{
    char *base = weft__heap_bases(comm->heap)[rank];
    return base != NULL ? weft__heap_record_slots(base) : NULL;
}

static weft_result make_memory(weft_comm *comm, struct weft__cuda_records *records)
{
    enum { SLOTS_BYTES = WEFT__NUM_RECORD_SLOTS * sizeof(struct weft__record_slot) };
    void *runs;
    WEFT__TRY(weft__machine_zero(comm, slots_of(comm, comm->rank), SLOTS_BYTES));
    WEFT__TRY(weft__cuda_alloc(comm, WEFT__NUM_CALLS * sizeof *records->runs, &runs));
    records->runs = runs;
    records->fold = weft__record_fold_create(comm->records, weft__cuda_of(comm)->clock_offset_ns);
    return records->fold != NULL ? WEFT_OK
                                 : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for records");
}

static void free_records(weft_comm *comm, struct weft__cuda_records *records)
{
    weft__cuda_free(comm, records->runs);
    weft__record_fold_destroy(records->fold);
    pthread_mutex_destroy(&records->mutex);
    free(records);
}

weft_result weft__cuda_records_open(weft_comm *comm)
{
    if (comm->records == NULL)
        return WEFT_OK;
    struct weft__cuda_records *records = calloc(1, sizeof *records);
    if (records == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for records");
    pthread_mutex_init(&records->mutex, NULL);
    const weft_result result = make_memory(comm, records);
    if (result != WEFT_OK)
        free_records(comm, records);
    else /* the thread that writes metrics runs already */
        __atomic_store_n(&weft__cuda_of(comm)->records, records, __ATOMIC_RELEASE);
    return result;
}

void weft__cuda_records_close(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    if (cuda->records != NULL)
        free_records(comm, cuda->records);
    cuda->records = NULL;
}

struct weft__cuda_record weft__cuda_record_of(const struct weft__launch *launch)
{
    const weft_comm *comm = launch->comm;
    const struct weft__cuda_records *records = weft__cuda_of(comm)->records;
    struct weft__cuda_record record = {.slot = NULL};
    if (records == NULL || launch->record_id == 0)
        return record;
    record.slot = &slots_of(comm, comm->rank)[launch->record_id % WEFT__NUM_RECORD_SLOTS];
    record.record_id = launch->record_id;
    record.num_bytes = launch->num_bytes;
    if (launch->meeting == WEFT__MEETS_ALL && launch->exchange > 0 && !launch->is_phase)
        record.operation = (uint64_t)launch->exchange << EXCHANGE_BIT | launch->sequence;
    if (launch->record_state != WEFT__RECORD_CAPTURED)
        return record;
    record.runs = &records->runs[launch->call];
    if (record.operation != 0)
        record.operation |= WEFT__RECORD_IS_REPLAYED;
    return record;
}

/* ---------------------------------------------------------------- reading */

static int read_slots(void *context, int32_t rank, struct weft__record_slot *slots)
{
    weft_comm *comm = context;
    const struct weft__record_slot *from = slots_of(comm, rank);
    if (from == NULL)
        return 0;
    /* The memory of a rank that has left or died may be gone. */
    if (rank != comm->rank && weft__status_rank_is_gone(&comm->status, rank))
        return -1;
    return weft__cuda_copy(comm, slots, from, WEFT__NUM_RECORD_SLOTS * sizeof *slots) == WEFT_OK
               ? 1
               : -1;
}

static void read_into(weft_comm *comm, struct weft__cuda_records *records)
{
    const struct weft__slot_source source = {comm, read_slots, weft__now_ns, comm->rank,
                                             comm->num_ranks};
    struct weft__call_runs runs[WEFT__NUM_CALLS];
    weft__record_fold_slots(records->fold, &source);
    if (weft__cuda_copy(comm, runs, records->runs, sizeof runs) == WEFT_OK)
        weft__record_fold_runs(records->fold, runs);
}

void weft__cuda_records_read(weft_comm *comm)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    struct weft__cuda_records *records =
        cuda != NULL ? __atomic_load_n(&cuda->records, __ATOMIC_ACQUIRE) : NULL;
    if (records == NULL || weft__cuda_enter(cuda) != WEFT_OK)
        return;
    pthread_mutex_lock(&records->mutex);
    read_into(comm, records);
    pthread_mutex_unlock(&records->mutex);
    weft__cuda_leave();
}
