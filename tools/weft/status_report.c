/* SPDX-License-Identifier: MIT */
#include "status_report.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "workload/failure.h"

static const char *const presences[] = {
    [WEFT_PRESENCE_ABSENT] = "absent",   [WEFT_PRESENCE_COME] = "come",
    [WEFT_PRESENCE_ANSWERS] = "answers", [WEFT_PRESENCE_SILENT] = "silent",
    [WEFT_PRESENCE_LEFT] = "left",       [WEFT_PRESENCE_DEAD] = "dead",
};
static const char *const presence_texts[] = {
    [WEFT_PRESENCE_ABSENT] = "has not come",
    [WEFT_PRESENCE_COME] = "waits for ranks that have not come",
    [WEFT_PRESENCE_SILENT] = "DOES NOT ANSWER: stopped, cut off, or without a core",
    [WEFT_PRESENCE_LEFT] = "has left",
    [WEFT_PRESENCE_DEAD] = "has died",
};

/* ---------------------------------------------------------------- JSON */

static json_t *waits_of(const weft_job_rank *rank)
{
    json_t *waits = json_array();
    for (int32_t i = 0; i < rank->num_waits; i++)
        json_array_append_new(waits, json_pack("{s:i, s:s, s:I}", "rank", rank->wait_ranks[i],
                                               "call", rank->wait_calls[i], "waited_ms",
                                               (json_int_t)rank->wait_ms[i]));
    return waits;
}

static int print_as_json(FILE *stream, const weft_job_rank *rank, int32_t pid)
{
    char comm[20];
    snprintf(comm, sizeof comm, "%016llx", (unsigned long long)rank->comm);
    json_t *object =
        json_pack("{s:s, s:i, s:s, s:i, s:i, s:s, s:s, s:i}", "kind", "rank", "rendezvous_pid", pid,
                  "communicator", comm, "rank", rank->rank, "num_ranks", rank->num_ranks, "state",
                  presences[rank->presence], "host", rank->host, "pid", rank->pid);
    if (object && rank->presence == WEFT_PRESENCE_ANSWERS)
        json_object_update_new(
            object,
            json_pack("{s:s, s:i, s:s, s:I, s:I, s:o, s:I, s:I, s:i, s:s}", "machine",
                      job_machine_names[rank->machine], "device", rank->device, "call", rank->call,
                      "number", (json_int_t)rank->num_calls, "waiting_ms",
                      (json_int_t)rank->waiting_ms, "waits", waits_of(rank), "heap_used_bytes",
                      (json_int_t)rank->heap_used_bytes, "heap_bytes", (json_int_t)rank->heap_bytes,
                      "result", rank->result, "error", rank->error));
    const int result = object ? json_dumpf(object, stream, JSON_COMPACT) : -1;
    json_decref(object);
    fputc('\n', stream);
    return result;
}

/* ---------------------------------------------------------------- text */

/* ", waits for rank 7 for 12.3 s; 9 for 12.3 s in weft_comm_barrier" */
static void print_waits(FILE *stream, const weft_job_rank *rank)
{
    enum { MAX_TOLD = 3 };
    for (int32_t i = 0; i < rank->num_waits && i < MAX_TOLD; i++) {
        fprintf(stream, "%s%d for %.1f s", i == 0 ? ", waits for rank " : "; ", rank->wait_ranks[i],
                (double)rank->wait_ms[i] / 1000);
        if (strcmp(rank->wait_calls[i], rank->call) != 0)
            fprintf(stream, " in %s", rank->wait_calls[i]);
    }
    if (rank->num_waits > MAX_TOLD)
        fprintf(stream, "; and %d more", rank->num_waits - MAX_TOLD);
    if (rank->num_waits == 0 && rank->waiting_ms > 0)
        fprintf(stream, ", its thread waits for %.1f s", (double)rank->waiting_ms / 1000);
}

static void print_rank(FILE *stream, const weft_job_rank *rank)
{
    const double mib = 1 << 20;
    fprintf(stream, "%6d  ", rank->rank);
    if (rank->pid != 0)
        fprintf(stream, "%s:%d  ", rank->host, rank->pid);
    if (rank->presence != WEFT_PRESENCE_ANSWERS) {
        fprintf(stream, "%s\n", presence_texts[rank->presence]);
        return;
    }
    fprintf(stream, "%s", job_machine_names[rank->machine]);
    if (rank->machine == WEFT_MACHINE_CUDA && rank->device >= 0)
        fprintf(stream, " %d", rank->device);
    fprintf(stream, "  heap %.1f of %.1f MiB  %s", (double)rank->heap_used_bytes / mib,
            (double)rank->heap_bytes / mib, rank->call);
    if (rank->num_calls > 0)
        fprintf(stream, " number %llu", (unsigned long long)rank->num_calls);
    print_waits(stream, rank);
    fprintf(stream, "\n");
    if (rank->result != WEFT_OK)
        fprintf(stream, "        failed: %s\n", rank->error);
}

static int waits_for(const weft_job_rank *rank, int32_t awaited)
{
    for (int32_t i = 0; i < rank->num_waits; i++)
        if (rank->wait_ranks[i] == awaited)
            return 1;
    return 0;
}

/* "rank 2 does not answer; 0, 1, 3 wait for it" */
static void print_awaited(FILE *stream, const weft_job_rank *ranks, const weft_job_rank *silent)
{
    enum { MAX_NAMED = 16 };
    int32_t num_waiting = 0;
    fprintf(stream, "rank %d does not answer; ", silent->rank);
    for (int32_t rank = 0; rank < silent->num_ranks; rank++) {
        if (!waits_for(&ranks[rank], silent->rank))
            continue;
        if (num_waiting++ < MAX_NAMED)
            fprintf(stream, "%s%d", num_waiting == 1 ? "" : ", ", rank);
    }
    if (num_waiting > MAX_NAMED)
        fprintf(stream, ", ... (%d ranks)", num_waiting);
    fprintf(stream, "%s for it\n",
            num_waiting == 0   ? "nobody waits"
            : num_waiting == 1 ? " waits"
                               : " wait");
}

static void print_communicator(FILE *stream, const weft_job_rank *ranks, int32_t pid)
{
    fprintf(stream, "communicator %016llx, %d ranks", (unsigned long long)ranks->comm,
            ranks->num_ranks);
    if (pid != 0)
        fprintf(stream, ", rendezvous in process %d", pid);
    fprintf(stream, "\n");
    for (int32_t rank = 0; rank < ranks->num_ranks; rank++)
        print_rank(stream, &ranks[rank]);
    for (int32_t rank = 0; rank < ranks->num_ranks; rank++)
        if (ranks[rank].presence == WEFT_PRESENCE_SILENT)
            print_awaited(stream, ranks, &ranks[rank]);
}

/* ---------------------------------------------------------------- both */

/* A job may have got more ranks since the last answer. */
static weft_result query(const weft_unique_id *id, weft_job_rank **ranks, int32_t *num_ranks)
{
    int32_t max_ranks = 64;
    for (;;) {
        *ranks = calloc((size_t)max_ranks, sizeof **ranks);
        if (!*ranks)
            return LACKS_MEMORY("%d ranks", max_ranks);
        for (int32_t i = 0; i < max_ranks; i++)
            (*ranks)[i].size = sizeof **ranks;
        const weft_result result = weft_job_query(id, 0, *ranks, max_ranks, num_ranks);
        if (result == WEFT_OK && *num_ranks <= max_ranks)
            return WEFT_OK;
        free(*ranks);
        if (result != WEFT_OK)
            return result;
        max_ranks = *num_ranks;
    }
}

weft_result status_print(FILE *stream, enum status_format format, const weft_unique_id *id,
                         int32_t pid)
{
    weft_job_rank *ranks;
    int32_t num_ranks;
    const weft_result result = query(id, &ranks, &num_ranks);
    if (result != WEFT_OK)
        return result;
    for (int32_t i = 0; format == STATUS_FORMAT_JSON && i < num_ranks; i++)
        print_as_json(stream, &ranks[i], pid);
    for (int32_t i = 0; format == STATUS_FORMAT_TEXT && i < num_ranks; i += ranks[i].num_ranks)
        print_communicator(stream, &ranks[i], pid);
    if (format == STATUS_FORMAT_TEXT && num_ranks == 0)
        fprintf(stream, "no communicator\n");
    free(ranks);
    return WEFT_OK;
}
