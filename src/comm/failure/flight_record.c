/* SPDX-License-Identifier: MIT */
/* The records of a communicator: as settings ask for them, and as files: the flight record, and
 * metrics, which a thread writes each second. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "comm/host/thread.h"

struct writing {
    weft_comm *comm;
    void (*write)(const struct weft__records *records, const struct weft__record_owner *owner,
                  FILE *file);
    /* While it fails, its status has the message, and whoever fails may hold the heap. */
    enum { COMM_IS_FAILING = 1, COMM_IS_AS_IT_SAYS } state;
};

void weft__comm_add_masked(weft_comm *comm, struct weft__masked *masked)
{
    pthread_mutex_lock(&comm->masked_mutex);
    masked->next = comm->masked;
    comm->masked = masked;
    pthread_mutex_unlock(&comm->masked_mutex);
}

void weft__comm_remove_masked(weft_comm *comm, struct weft__masked *masked)
{
    pthread_mutex_lock(&comm->masked_mutex);
    struct weft__masked **link = &comm->masked;
    while (*link != NULL && *link != masked)
        link = &(*link)->next;
    if (*link != NULL)
        *link = masked->next;
    pthread_mutex_unlock(&comm->masked_mutex);
}

/* With the mutex. mask[num_ranks] is for its use. Masks that cannot be read count as before. */
static void read_masks(weft_comm *comm, int32_t *mask, uint64_t *num_masks)
{
    struct weft__peer_counters *peers = weft__records_peers(comm->records);
    for (const struct weft__masked *masked = comm->masked; masked != NULL; masked = masked->next) {
        if (masked->read(masked, mask) != WEFT_OK)
            return;
        for (int32_t rank = 0; rank < comm->num_ranks; rank++)
            num_masks[rank] += mask[rank] != 0;
    }
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        __atomic_store_n(&peers[rank].num_masks, num_masks[rank], __ATOMIC_RELAXED);
}

void weft__comm_read_records(weft_comm *comm)
{
    char message[WEFT__ERROR_BYTES]; /* a reading that fails is no failure of the caller's */
    if (comm->records == NULL)
        return;
    snprintf(message, sizeof message, "%s", weft__last_error());
    if (comm->hooks->read_records != NULL)
        comm->hooks->read_records(comm);
    int32_t *mask = calloc((size_t)comm->num_ranks, sizeof *mask);
    uint64_t *num_masks = calloc((size_t)comm->num_ranks, sizeof *num_masks);
    pthread_mutex_lock(&comm->masked_mutex);
    if (mask != NULL && num_masks != NULL)
        read_masks(comm, mask, num_masks);
    pthread_mutex_unlock(&comm->masked_mutex);
    free(mask);
    free(num_masks);
    weft__set_last_error(message);
}

static void write_to(const struct writing *writing, FILE *file)
{
    weft_comm *comm = writing->comm;
    const struct weft__identity *own = &comm->identities[comm->rank];
    const struct weft__status *status = &comm->status;
    const uint32_t version = weft_version();
    const struct weft__wait_list waits = weft__waits_find(&comm->waits, UINT64_MAX);
    weft_heap_info heap = {0};
    int32_t awaited[WEFT__MAX_LISTED_WAITS];
    char version_text[32];
    weft__comm_read_records(comm);
    for (int32_t i = 0; i < waits.num_waits; i++)
        awaited[i] = waits.waits[i].rank;
    snprintf(version_text, sizeof version_text, "%u.%u.%u", version / 10000, version / 100 % 100,
             version % 100);
    if (writing->state != COMM_IS_FAILING && comm->heap != NULL)
        weft__heap_query(comm->heap, &heap);
    const int has_failed =
        writing->state == COMM_IS_FAILING ||
        atomic_load_explicit(&comm->status.result, memory_order_acquire) != WEFT_OK;
    const struct weft__record_owner owner = {
        .host = own->host,
        .version = version_text,
        .commit = weft_commit(),
        .machine = comm->hooks->name,
        .pid = (int32_t)getpid(),
        .rank = comm->rank,
        .num_ranks = comm->num_ranks,
        .job = comm->job,
        .key = comm->key,
        .clock_ahead_ns = comm->clock.ahead_ns,
        .clock_error_ns = comm->clock.error_ns,
        .timeout_ms = comm->timeout_ms,
        .failure = has_failed ? status->message : NULL,
        .failed_rank = has_failed ? status->failed_rank : WEFT__NOBODY,
        .num_awaited = waits.num_waits,
        .awaited = awaited,
        .heap_used_bytes = heap.used_bytes,
        .heap_committed_bytes = heap.committed_bytes,
    };
    writing->write(comm->records, &owner, file);
}

static weft_result cannot_write(const char *path)
{
    return weft__error(WEFT_ERROR_SYSTEM, "cannot write %s: %s", path, strerror(errno));
}

static weft_result write_file(const struct writing *writing, const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return cannot_write(path);
    write_to(writing, file);
    const int is_lost = ferror(file) != 0;
    return fclose(file) != 0 || is_lost ? cannot_write(path) : WEFT_OK;
}

enum { NAME_BYTES = 64 };

/* A file that is there is whole: it gets its name at its end. */
static weft_result write_into(const struct writing *writing, const char *dir, const char *name)
{
    char path[PATH_MAX], unfinished[PATH_MAX + 16];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "a directory's name has %zu bytes: too many for a path", strlen(dir));
    snprintf(unfinished, sizeof unfinished, "%s.tmp%d", path, (int)getpid());
    weft_result result = write_file(writing, unfinished);
    if (result == WEFT_OK && rename(unfinished, path) != 0)
        result = cannot_write(path);
    if (result != WEFT_OK)
        unlink(unfinished);
    return result;
}

/* Files of one directory may be of several communicators and jobs. */
static weft_result write_record(const struct writing *writing)
{
    const weft_comm *comm = writing->comm;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "record.%016" PRIx64 ".%016" PRIx64 ".%d.json", comm->job,
             comm->key, comm->rank);
    return write_into(writing, comm->record_dir, name);
}

weft_result weft__comm_write_records(weft_comm *comm, const char *path)
{
    const struct writing writing = {comm, weft__records_write_json, COMM_IS_AS_IT_SAYS};
    if (comm->records == NULL)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "there are no records: WEFT_RECORDS is 0");
    if (path != NULL)
        return write_file(&writing, path);
    if (comm->record_dir == NULL)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "path is NULL, and WEFT_RECORD names no directory");
    return write_record(&writing);
}

static weft_result copy_setting(enum weft__setting setting, char **copy)
{
    const char *text = weft__setting_text(setting);
    *copy = text != NULL ? strdup(text) : NULL;
    return text == NULL || *copy != NULL ? WEFT_OK
                                         : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %s",
                                                       weft__settings[setting].name);
}

/* ---------------------------------------------------------------- the recorder
 * A thread of its own writes, since a file system may hang: nobody else waits for that, but for a
 * second those to whom the failure is told (weft__status_check). */

static void write_failure(weft_comm *comm)
{
    const struct writing writing = {comm, weft__records_write_json, COMM_IS_FAILING};
    if (write_record(&writing) != WEFT_OK)
        weft__log(WEFT__LOG_WARN, comm->rank, "no flight record: %s", weft__last_error());
}

/* A job that starts again replaces the files of the last one, which would be out of date. */
static void write_metrics(weft_comm *comm)
{
    const struct writing writing = {comm, weft__records_write_prometheus, COMM_IS_AS_IT_SAYS};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "weft.%016" PRIx64 ".%d.prom", comm->key, comm->rank);
    const weft_result result = write_into(&writing, comm->recorder.metrics_dir, name);
    if (result != WEFT_OK && !comm->recorder.has_warned)
        weft__log(WEFT__LOG_WARN, comm->rank, "no metrics: %s", weft__last_error());
    comm->recorder.has_warned |= result != WEFT_OK;
}

/* With the mutex, which it gives back while it writes. */
static void write_without_mutex(weft_comm *comm, void (*write)(weft_comm *comm))
{
    pthread_mutex_unlock(&comm->status.mutex);
    write(comm);
    pthread_mutex_lock(&comm->status.mutex);
}

static void *be_recorder(void *argument)
{
    enum { PERIOD_MS = 1000 };
    weft_comm *comm = argument;
    struct weft__status *status = &comm->status;
    int64_t next_ns = 0;
    int ends = 0;
    pthread_mutex_lock(&status->mutex);
    while (!ends) {
        ends = comm->recorder.must_end;
        if ((status->record == WEFT__RECORD_AWAITED || status->record == WEFT__RECORD_IS_LATE) &&
            atomic_load(&status->result) != WEFT_OK) {
            write_without_mutex(comm, write_failure);
            status->record = WEFT__RECORD_IS_THERE;
            pthread_cond_broadcast(&status->changed);
        }
        const int has_metrics = comm->recorder.heap_is_up && comm->recorder.metrics_dir != NULL;
        if (has_metrics && (ends || weft__now_ns() >= next_ns)) {
            write_without_mutex(comm, write_metrics);
            next_ns = weft__now_ns() + PERIOD_MS * WEFT__NS_PER_MS;
        }
        const struct timespec next = weft__timespec(next_ns);
        if (ends || comm->recorder.must_end)
            continue;
        if (has_metrics)
            pthread_cond_timedwait(&status->changed, &status->mutex, &next);
        else
            pthread_cond_wait(&status->changed, &status->mutex);
    }
    pthread_mutex_unlock(&status->mutex);
    return NULL;
}

weft_result weft__comm_prepare_records(weft_comm *comm)
{
    int64_t num_records = 0;
    WEFT__TRY(weft__setting_number(WEFT__SETTING_RECORDS, &num_records));
    if (num_records == 0)
        return WEFT_OK;
    comm->records = weft__records_create(
        (struct weft__records_size){(int32_t)num_records, comm->num_ranks, WEFT__NUM_CALLS});
    if (comm->records == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d records",
                           (int32_t)num_records);
    WEFT__TRY(copy_setting(WEFT__SETTING_RECORD, &comm->record_dir));
    WEFT__TRY(copy_setting(WEFT__SETTING_METRICS, &comm->recorder.metrics_dir));
    if (comm->record_dir == NULL && comm->recorder.metrics_dir == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__thread_start(&comm->recorder.thread, be_recorder, comm));
    comm->recorder.is_running = 1;
    pthread_mutex_lock(&comm->status.mutex);
    comm->status.record = comm->record_dir != NULL ? WEFT__RECORD_AWAITED : WEFT__RECORD_NONE;
    pthread_mutex_unlock(&comm->status.mutex);
    return WEFT_OK;
}

static void tell_recorder(weft_comm *comm, int *what)
{
    pthread_mutex_lock(&comm->status.mutex);
    *what = 1;
    pthread_cond_broadcast(&comm->status.changed);
    pthread_mutex_unlock(&comm->status.mutex);
}

void weft__comm_start_metrics(weft_comm *comm)
{
    if (comm->recorder.is_running)
        tell_recorder(comm, &comm->recorder.heap_is_up);
}

void weft__comm_end_records(weft_comm *comm)
{
    if (!comm->recorder.is_running)
        return;
    tell_recorder(comm, &comm->recorder.must_end);
    pthread_join(comm->recorder.thread, NULL);
    comm->recorder.is_running = 0;
}

void weft__comm_free_records(weft_comm *comm)
{
    weft__records_destroy(comm->records);
    free(comm->record_dir);
    free(comm->recorder.metrics_dir);
}
