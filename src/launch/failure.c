/* SPDX-License-Identifier: MIT */
/* Why a launch failed, in words. */
#include <stdio.h>

#include "comm/failure/culprit.h"
#include "launch/mismatch.h"
#include "launch/programs.h"

static void fail_mismatch(weft_comm *comm, enum weft__call call, const struct wp_failure *failure)
{
    struct weft__mismatch mismatch;
    weft__mismatch_describe(failure, &mismatch);
    weft__status_fail(&comm->status, WEFT_ERROR_MISMATCH, failure->site.rank,
                      "%s #%llu: ranks disagree on %s: %s on rank %d, %s on rank %d",
                      weft__call_name((int32_t)call), (unsigned long long)failure->site.sequence,
                      mismatch.field, mismatch.ours, comm->rank, mismatch.theirs,
                      failure->site.rank);
}

static void fail_wait(weft_comm *comm, enum weft__call call, const struct wp_failure *failure)
{
    const struct wp_wait_site *site = &failure->site;
    const struct weft__wait direct = {
        .rank = site->rank, .call = (int32_t)call, .exchange = site->exchange};
    static const char *const phases[] = {
        [WP_PHASE_START] = "start",    [WP_PHASE_FINISH] = "finish",
        [WP_PHASE_DATA] = "send",      [WP_PHASE_ACCESS] = "answer an access to its heap",
        [WP_PHASE_CREDIT] = "receive", [WP_PHASE_FLUSH] = "take what it was sent"};
    const int is_gone = failure->kind == WP_FAILURE_RANK_GONE;
    struct weft__culprit culprit;
    char why[80];
    if (is_gone && atomic_load(&comm->status.rank_states[site->rank]) == WEFT__RANK_DEAD) {
        weft__status_fail(&comm->status, WEFT_ERROR_RANK_FAILED, site->rank,
                          "%s #%llu: rank %d waited for rank %d to %s, which has died",
                          weft__call_name((int32_t)call), (unsigned long long)site->sequence,
                          comm->rank, site->rank, phases[site->phase]);
        return;
    }
    if (is_gone)
        snprintf(why, sizeof why, "which has left the communicator by weft_comm_destroy");
    else
        snprintf(why, sizeof why, "which did not within %u ms", comm->timeout_ms);
    weft__comm_find_culprit(comm, &direct, &culprit);
    if (culprit.state == WEFT__CULPRIT_IN_OTHER_CALL) {
        weft__status_fail(&comm->status, WEFT_ERROR_MISMATCH, culprit.rank,
                          "ranks disagree on what to call: rank %d called %s and rank %d called %s",
                          comm->rank, weft__call_name((int32_t)call), culprit.other,
                          weft__call_name(culprit.call));
        return;
    }
    /* A rank that gave up and left only waited for the culprit, like this one. */
    const int is_loss =
        culprit.state == WEFT__CULPRIT_LEFT || (is_gone && culprit.state == WEFT__CULPRIT_UNKNOWN);
    weft__status_fail(&comm->status, is_loss ? WEFT_ERROR_RANK_FAILED : WEFT_ERROR_TIMEOUT,
                      culprit.rank, "%s #%llu: rank %d waited for rank %d to %s, %s; %s",
                      weft__call_name((int32_t)call), (unsigned long long)site->sequence,
                      comm->rank, site->rank, phases[site->phase], why, culprit.story);
}

/* A failed wait for rows that the caller's own work did not finish. */
static void fail_rows(weft_comm *comm, enum weft__call call, const struct wp_failure *failure)
{
    weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, comm->rank,
                      "%s: rank %d waited for rows of its local expert %llu, whose word of "
                      "row_signals was %llu after %u ms, not %llu or more",
                      weft__call_name((int32_t)call), comm->rank,
                      (unsigned long long)failure->site.sequence, (unsigned long long)failure->seen,
                      comm->timeout_ms, (unsigned long long)failure->expected);
}

/* A wait for nobody in particular can blame nobody. */
static void fail_nobody(weft_comm *comm, enum weft__call call, const struct wp_failure *failure)
{
    if (failure->site.phase == WP_PHASE_FLUSH)
        weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, WEFT__NOBODY,
                          "%s: what rank %d has sent to ranks of other nodes did not come within "
                          "%u ms",
                          weft__call_name((int32_t)call), comm->rank, comm->timeout_ms);
    else
        weft__status_fail(
            &comm->status, WEFT_ERROR_TIMEOUT, WEFT__NOBODY,
            "%s: rank %d waited for the word at %p, byte %llu of its heap, which any "
            "rank may change, to be %llu or more; within %u ms it was %llu",
            weft__call_name((int32_t)call), comm->rank,
            (void *)(weft__heap_bases(comm->heap)[comm->rank] + failure->site.exchange),
            (unsigned long long)failure->site.exchange, (unsigned long long)failure->expected,
            comm->timeout_ms, (unsigned long long)failure->seen);
}

/* The communicator had failed before: the stream's error also tells what that interrupted. */
static weft_result interrupted(weft_comm *comm, enum weft__call call,
                               const struct wp_failure *failure)
{
    const weft_result result = weft__status_check(&comm->status);
    char cause[512], number[32] = "", awaited[64] = "";
    snprintf(cause, sizeof cause, "%s", weft_last_error());
    if (failure->site.phase == WP_PHASE_EXPERT)
        snprintf(awaited, sizeof awaited, ", while it waited for rows of its local expert %llu",
                 (unsigned long long)failure->site.sequence);
    else if (failure->site.rank != WP_NO_RANK)
        snprintf(number, sizeof number, " #%llu", (unsigned long long)failure->site.sequence);
    return weft__error(result, "%s%s on rank %d was interrupted%s: %s",
                       weft__call_name((int32_t)call), number, comm->rank, awaited, cause);
}

weft_result weft__program_failed(weft_comm *comm, enum weft__call call,
                                 const struct wp_failure *failure)
{
    if (failure->kind == WP_FAILURE_COMM)
        return interrupted(comm, call, failure);
    if (failure->kind == WP_FAILURE_MISMATCH)
        fail_mismatch(comm, call, failure);
    else if (failure->kind == WP_FAILURE_BLOCK_SYNC)
        weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, comm->rank,
                          "%s: some warps of a block of rank %d wait for others that do not come",
                          weft__call_name((int32_t)call), comm->rank);
    else if (failure->kind == WP_FAILURE_OUTSTANDING)
        weft__status_fail(
            &comm->status, WEFT_ERROR_INVALID_ARGUMENT, comm->rank,
            "%s on rank %d, in a graph or after one: its weft_ll has %llu results or combines "
            "that it could use, this would be number %llu",
            weft__call_name((int32_t)call), comm->rank, (unsigned long long)failure->expected,
            (unsigned long long)failure->seen);
    else if (failure->kind == WP_FAILURE_NO_ROOM)
        weft__status_fail(
            &comm->status, WEFT_ERROR_CAPACITY, failure->site.rank,
            "%s #%llu: expert %u on rank %d has room for %llu rows (expert_capacity), "
            "and tokens choose it %llu times: tokens of rank %d name it twice",
            weft__call_name((int32_t)call), (unsigned long long)failure->site.sequence,
            failure->field, comm->rank, (unsigned long long)failure->expected,
            (unsigned long long)failure->seen, failure->site.rank);
    else if (failure->site.phase == WP_PHASE_EXPERT)
        fail_rows(comm, call, failure);
    else if (failure->site.rank == WP_NO_RANK)
        fail_nobody(comm, call, failure);
    else
        fail_wait(comm, call, failure);
    /* All ranks fail for the same reason, also those that need nothing more of this one: whose own
     * calls fit all that they see, or who were late and have found here what they waited for. */
    weft__comm_share_failure(comm);
    return weft__status_check(&comm->status);
}
