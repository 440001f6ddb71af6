/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/structs.h"
#include "comm/rendezvous/beacon.h"
#include "comm/rendezvous/observe.h"

_Static_assert(WEFT__MAX_LISTED_WAITS == sizeof((weft_job_rank *)0)->wait_ranks / sizeof(int32_t),
               "all waits of an answer have room");

weft_result weft_job_list(int32_t *pids, int32_t max_pids, int32_t *num_pids)
{
    WEFT__TRY(weft__check_range(max_pids, 0, INT32_MAX, "max_pids"));
    WEFT__TRY(weft__check_array(pids, max_pids, "pids"));
    WEFT__TRY(weft__check_not_null(num_pids, "num_pids"));
    *num_pids = weft__beacon_list(pids, max_pids);
    return WEFT_OK;
}

weft_result weft_job_ids(int32_t pid, weft_unique_id *ids, int32_t max_ids, int32_t *num_ids)
{
    WEFT__TRY(weft__check_range(pid, 1, INT32_MAX, "pid"));
    WEFT__TRY(weft__check_range(max_ids, 0, INT32_MAX, "max_ids"));
    WEFT__TRY(weft__check_array(ids, max_ids, "ids"));
    WEFT__TRY(weft__check_not_null(num_ids, "num_ids"));
    return weft__beacon_ask(pid, WEFT__INQUIRY_MS, ids, max_ids, num_ids);
}

static weft_presence presence_of(const struct weft__observed_rank *seen)
{
    static const weft_presence presences[] = {[WEFT__ABSENT] = WEFT_PRESENCE_ABSENT,
                                              [WEFT__PRESENT] = WEFT_PRESENCE_COME,
                                              [WEFT__LEFT] = WEFT_PRESENCE_LEFT,
                                              [WEFT__DEAD] = WEFT_PRESENCE_DEAD};
    if (seen->state == WEFT__REPORTED)
        return WEFT_PRESENCE_ANSWERS;
    return seen->state == WEFT__ASKED ? WEFT_PRESENCE_SILENT : presences[seen->entry.presence];
}

static void tell_report(const struct weft__report *report, weft_job_rank *told)
{
    const struct weft__wait_list *waits = &report->answer.waits;
    told->machine = strcmp(report->machine, "cuda") == 0 ? WEFT_MACHINE_CUDA : WEFT_MACHINE_CPU;
    told->device = report->device;
    told->call = weft__call_name(report->call);
    told->num_calls = report->count;
    told->waiting_ms = report->held_ms;
    told->heap_used_bytes = report->heap_used_bytes;
    told->heap_bytes = report->heap_bytes;
    told->result = (weft_result)report->result;
    told->num_waits = waits->num_waits;
    for (int32_t i = 0; i < waits->num_waits; i++) {
        told->wait_ranks[i] = waits->waits[i].rank;
        told->wait_calls[i] = weft__call_name(waits->waits[i].call);
        told->wait_ms[i] = waits->waits[i].waited_ms;
    }
    snprintf(told->error, sizeof told->error, "%s", report->error);
}

static weft_job_rank tell(const struct weft__observed_rank *seen)
{
    weft_job_rank told = {.comm = seen->key,
                          .rank = seen->rank,
                          .num_ranks = seen->num_ranks,
                          .presence = presence_of(seen),
                          .pid = seen->entry.pid,
                          .device = -1};
    memcpy(told.host, seen->entry.host, sizeof told.host);
    if (seen->state == WEFT__REPORTED)
        tell_report(&seen->report, &told);
    return told;
}

weft_result weft_job_query(const weft_unique_id *id, uint32_t timeout_ms, weft_job_rank *ranks,
                           int32_t max_ranks, int32_t *num_ranks)
{
    struct weft__meeting_point point;
    struct weft__observed_rank *seen;
    WEFT__TRY(weft__check_not_null(id, "id"));
    WEFT__TRY(weft__check_not_null(num_ranks, "num_ranks"));
    WEFT__TRY(weft__check_range(max_ranks, 0, INT32_MAX, "max_ranks"));
    WEFT__TRY(WEFT__CHECK_OUTPUTS(weft_job_rank, ranks, max_ranks, "ranks"));
    WEFT__TRY(weft__meeting_point_from_id(&point, id));
    WEFT__TRY(
        weft__observe(&point, timeout_ms > 0 ? timeout_ms : WEFT__INQUIRY_MS, &seen, num_ranks));
    for (int32_t i = 0; i < *num_ranks && i < max_ranks; i++) {
        const weft_job_rank told = tell(&seen[i]);
        weft_job_rank *at = (weft_job_rank *)(void *)((char *)ranks + (size_t)i * ranks->size);
        WEFT__WRITE(weft_job_rank, at, &told);
    }
    free(seen);
    return WEFT_OK;
}
