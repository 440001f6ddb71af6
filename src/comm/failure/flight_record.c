/* SPDX-License-Identifier: MIT */
/* The records of a communicator: as settings ask for them, and as a file, the flight record. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"

/* Files of one directory may be of several communicators, and jobs. */
static weft_result choose_path(const weft_comm *comm, char path[PATH_MAX])
{
    if (comm->record_dir == NULL)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "path is NULL, and WEFT_RECORD names no directory");
    const int length = snprintf(path, PATH_MAX, "%s/record.%016" PRIx64 ".%d.json",
                                comm->record_dir, comm->key, comm->rank);
    return length < PATH_MAX ? WEFT_OK
                             : weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                                           "WEFT_RECORD has %zu bytes: too many for a path",
                                           strlen(comm->record_dir));
}

static void write_to(weft_comm *comm, FILE *file)
{
    const struct weft__identity *own = &comm->identities[comm->rank];
    const struct weft__status *status = &comm->status;
    const uint32_t version = weft_version();
    const struct weft__wait_list waits = weft__waits_find(&comm->waits, UINT64_MAX);
    int32_t awaited[WEFT__MAX_LISTED_WAITS];
    char version_text[32];
    for (int32_t i = 0; i < waits.num_waits; i++)
        awaited[i] = waits.waits[i].rank;
    snprintf(version_text, sizeof version_text, "%u.%u.%u", version / 10000, version / 100 % 100,
             version % 100);
    const struct weft__record_owner owner = {
        .host = own->host,
        .version = version_text,
        .machine = comm->hooks->name,
        .pid = (int32_t)getpid(),
        .rank = comm->rank,
        .num_ranks = comm->num_ranks,
        .key = comm->key,
        .timeout_ms = comm->timeout_ms,
        .failure = status->message[0] != '\0' ? status->message : NULL,
        .failed_rank = status->failed_rank,
        .num_awaited = waits.num_waits,
        .awaited = awaited,
    };
    weft__records_write_json(comm->records, &owner, file);
}

/* A file that is there is whole: it gets its name at its end. */
weft_result weft__comm_write_records(weft_comm *comm, const char *path)
{
    char chosen[PATH_MAX], unfinished[PATH_MAX + 16];
    if (comm->records == NULL)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "there are no records: WEFT_RECORDS is 0");
    if (path == NULL)
        WEFT__TRY(choose_path(comm, chosen));
    else if (snprintf(chosen, sizeof chosen, "%s", path) >= (int)sizeof chosen)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "path has %zu bytes, allowed are 1..%d",
                           strlen(path), PATH_MAX - 1);
    snprintf(unfinished, sizeof unfinished, "%s.tmp%d", chosen, (int)getpid());
    FILE *file = fopen(unfinished, "we");
    if (file == NULL)
        return weft__error(WEFT_ERROR_SYSTEM, "cannot write %s: %s", unfinished, strerror(errno));
    write_to(comm, file);
    const int is_lost = ferror(file) != 0;
    if (fclose(file) != 0 || is_lost || rename(unfinished, chosen) != 0) {
        const int error = errno;
        unlink(unfinished);
        return weft__error(WEFT_ERROR_SYSTEM, "cannot write %s: %s", chosen, strerror(error));
    }
    return WEFT_OK;
}

static void write_records(void *argument)
{
    weft_comm *comm = argument;
    const weft_result result = weft__comm_write_records(comm, NULL);
    if (result != WEFT_OK)
        weft__log(WEFT__LOG_WARN, comm->rank, "no flight record: %s", weft__last_error());
}

weft_result weft__comm_prepare_records(weft_comm *comm)
{
    const char *directory = weft__setting_text(WEFT__SETTING_RECORD);
    int64_t num_records = 0;
    WEFT__TRY(weft__setting_number(WEFT__SETTING_RECORDS, &num_records));
    if (num_records == 0)
        return WEFT_OK;
    comm->records = weft__records_create((int32_t)num_records, comm->num_ranks);
    comm->record_dir = directory != NULL ? strdup(directory) : NULL;
    if (comm->records == NULL || (directory != NULL && comm->record_dir == NULL))
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d records",
                           (int32_t)num_records);
    comm->status.argument = comm;
    if (comm->record_dir != NULL)
        comm->status.on_failure = write_records;
    return WEFT_OK;
}
