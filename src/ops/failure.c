/* SPDX-License-Identifier: MIT */
/* Why a launch failed, in words. */
#include <stdio.h>
#include <string.h>

#include "comm/culprit.h"
#include "ops/programs.h"
#include "programs/packet_area.h"

static int is_collective(const struct weft__program *program)
{
    for (uint64_t i = WEFT_PROGRAM_packet_reduce; i <= WEFT_PROGRAM_direct_push; i++) {
        if (strcmp(program->name, weft__program_name(i)) == 0)
            return 1;
    }
    return 0;
}

static const char *collective_field_name(uint32_t field)
{
    switch (field) {
    case WEFT_HEADER_PROGRAM:
        return "the algorithm, which follows from operation, count and dtype";
    case WEFT_HEADER_DTYPE:
        return "dtype";
    case WEFT_HEADER_COLLECTIVE:
        return "the operation (enum weft_collective)";
    case WEFT_HEADER_OP:
        return "op";
    case WEFT_HEADER_ROOT:
        return "root";
    case WEFT_HEADER_PIECES:
        return "whether send and recv are staged in pieces (more than staging_bytes must be in "
               "the heap, or registered, on all ranks or on none)";
    default:
        return "count (its bytes between the two ranks)";
    }
}

static void field_name(const struct weft__program *program, uint32_t field, char *name,
                       size_t name_bytes)
{
    static const char *const names[] = {
        [WEFT_CALL_PROGRAM] = "the operation",
        [WEFT_CALL_NUM_TOPK] = "num_topk",
        [WEFT_CALL_DTYPE] = "dtype",
        [WEFT_CALL_OPTIONS] = ("which of topk_idx (1), topk_weights (2) and 64-bit indices (4) "
                               "are given"),
        [WEFT_CALL_MAX_TOKENS] = "max_tokens of the handle",
        [WEFT_CALL_NUM_PLANES] = "num_planes",
    };
    if (is_collective(program))
        snprintf(name, name_bytes, "%s", collective_field_name(field));
    else if (field < WEFT_CALL_ROW_BYTES)
        snprintf(name, name_bytes, "%s", names[field]);
    else if (strcmp(program->name, weft__program_name(WEFT_PROGRAM_combine)) == 0 ||
             strcmp(program->name, weft__program_name(WEFT_PROGRAM_internode_combine)) == 0)
        snprintf(name, name_bytes, "the bytes of a row (hidden times those of dtype)");
    else
        snprintf(name, name_bytes, "row_bytes of plane %u", field - WEFT_CALL_ROW_BYTES);
}

static void field_value(uint32_t field, uint64_t value, char *text, size_t text_bytes)
{
    if (field == WEFT_CALL_PROGRAM)
        snprintf(text, text_bytes, "%s", weft__program_name(value));
    else
        snprintf(text, text_bytes, "%llu", (unsigned long long)value);
}

static void fail_mismatch(weft_comm *comm, const struct weft__program *program,
                          const struct weft_failure *failure)
{
    char name[192], ours[32], theirs[32];
    field_name(program, failure->field, name, sizeof name);
    field_value(failure->field, failure->expected, ours, sizeof ours);
    field_value(failure->field, failure->seen, theirs, sizeof theirs);
    weft__status_fail(&comm->status, WEFT_ERROR_MISMATCH, failure->site.rank,
                      "%s #%llu: ranks disagree on %s: %s on rank %d, %s on rank %d", program->name,
                      (unsigned long long)failure->site.sequence, name, ours, comm->rank, theirs,
                      failure->site.rank);
    /* Ranks whose own calls fit all that they see would wait for what this one does not send now. */
    weft__comm_share_failure(comm);
}

static void fail_wait(weft_comm *comm, const struct weft__program *program,
                      const struct weft_failure *failure)
{
    const struct weft_wait_site *site = &failure->site;
    const struct weft__wait direct = {.rank = site->rank, .exchange = site->exchange};
    static const char *const phases[] = {[WEFT_PHASE_START] = "start",
                                         [WEFT_PHASE_FINISH] = "finish",
                                         [WEFT_PHASE_DATA] = "send",
                                         [WEFT_PHASE_ACCESS] = "answer an access to its heap"};
    const int has_left = failure->kind == WEFT_FAILURE_RANK_LEFT;
    struct weft__culprit culprit;
    char why[64];
    if (has_left)
        snprintf(why, sizeof why, "which has left the communicator");
    else
        snprintf(why, sizeof why, "which did not within %u ms", comm->timeout_ms);
    weft__comm_find_culprit(comm, &direct, &culprit);
    /* A rank that gave up and left only waited for the culprit, like this one. */
    const int is_loss =
        culprit.state == WEFT__CULPRIT_LEFT || (has_left && culprit.state == WEFT__CULPRIT_UNKNOWN);
    weft__status_fail(&comm->status, is_loss ? WEFT_ERROR_RANK_FAILED : WEFT_ERROR_TIMEOUT,
                      culprit.rank,
                      "%s #%llu: rank %d waited for rank %d to %s, %s (signal expected %llu, "
                      "seen %llu); %s",
                      program->name, (unsigned long long)site->sequence, comm->rank, site->rank,
                      phases[site->phase], why, (unsigned long long)failure->expected,
                      (unsigned long long)failure->seen, culprit.story);
}

/* A wait for nobody in particular can blame nobody. */
static void fail_nobody(weft_comm *comm, const struct weft__program *program,
                        const struct weft_failure *failure)
{
    if (failure->site.phase == WEFT_PHASE_FLUSH)
        weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, WEFT__NOBODY,
                          "%s: what rank %d has sent to ranks of other nodes did not come within "
                          "%u ms",
                          program->name, comm->rank, comm->timeout_ms);
    else
        weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, WEFT__NOBODY,
                          "%s: rank %d waited for the word at byte %llu of its heap, which any "
                          "rank may change, to be %llu or more; within %u ms it was %llu",
                          program->name, comm->rank, (unsigned long long)failure->site.exchange,
                          (unsigned long long)failure->expected, comm->timeout_ms,
                          (unsigned long long)failure->seen);
}

/* The communicator had failed before: the stream's error also tells what that interrupted. */
static weft_result interrupted(weft_comm *comm, const struct weft__program *program,
                               const struct weft_failure *failure)
{
    const weft_result result = weft__status_check(&comm->status);
    char cause[512], number[32] = "";
    snprintf(cause, sizeof cause, "%s", weft_last_error());
    if (failure->site.rank != WEFT_NO_RANK)
        snprintf(number, sizeof number, " #%llu", (unsigned long long)failure->site.sequence);
    return weft__error(result, "%s%s on rank %d was interrupted: %s", program->name, number,
                       comm->rank, cause);
}

weft_result weft__program_failed(weft_comm *comm, const struct weft__program *program,
                                 const struct weft_failure *failure)
{
    if (failure->kind == WEFT_FAILURE_COMM)
        return interrupted(comm, program, failure);
    if (failure->kind == WEFT_FAILURE_MISMATCH)
        fail_mismatch(comm, program, failure);
    else if (failure->kind == WEFT_FAILURE_BLOCK_SYNC)
        weft__status_fail(&comm->status, WEFT_ERROR_TIMEOUT, comm->rank,
                          "%s: some warps of a block of rank %d wait for others that do not come",
                          program->name, comm->rank);
    else if (failure->site.rank == WEFT_NO_RANK)
        fail_nobody(comm, program, failure);
    else
        fail_wait(comm, program, failure);
    return weft__status_check(&comm->status);
}
