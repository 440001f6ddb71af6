/* SPDX-License-Identifier: MIT */
/* Regions of a communicator's network that come and go while it lives. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/log.h"
#include "net/attach.h"

/* ---------------------------------------------------------------- the number */

struct offer {
    uint32_t free_numbers; /* bits */
    enum { NO_MEMORY, MEMORY } what;
};

/* Ranks may have removed regions in different orders: the lowest number that is free on all. */
static weft_result choose_number(const weft_comm *comm, const struct offer *offers,
                                 uint32_t *number)
{
    uint32_t free_numbers = UINT32_MAX;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (offers[rank].what == NO_MEMORY)
            return weft__error(WEFT_ERROR_UNSUPPORTED, "rank %d has no such memory for the network",
                               rank);
        free_numbers &= offers[rank].free_numbers;
    }
    if (free_numbers == 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "the network has %d regions, and takes no more",
                           WEFT__NET_MAX_REGIONS);
    *number = (uint32_t)__builtin_ctz(free_numbers);
    return WEFT_OK;
}

static weft_result look_for_numbers(struct weft__net *net, void *context)
{
    ((struct offer *)context)->free_numbers = weft__net_free_regions(net);
    return WEFT_OK;
}

static weft_result agree_on_number(weft_comm *comm, const struct weft__net_part *part,
                                   struct offer *offers, uint32_t *number)
{
    struct offer own = {.what = part->memory != NULL ? MEMORY : NO_MEMORY};
    weft__progress_act(comm->network->progress, look_for_numbers, &own);
    WEFT__TRY(weft__comm_all_gather(comm, &own, sizeof(own), offers));
    return choose_number(comm, offers, number);
}

/* ---------------------------------------------------------------- the region */

/* What a rank tells the others. */
struct introduction {
    int32_t result; /* of registering */
    uint32_t unused;
    struct weft__net_region_card card;
};

struct registration {
    const weft_comm *comm;
    const struct weft__net_part *part;
    uint32_t number;
    struct introduction own;
    struct introduction *all; /* [num_ranks] */
};

static weft_result register_part(struct weft__net *net, void *context)
{
    struct registration *registration = context;
    const struct weft__net_part *part = registration->part;
    WEFT__TRY(weft__net_reg(net, registration->number, part->memory, part->num_bytes, part->kind));
    weft__net_tell_region(net, registration->number, &registration->own.card);
    return WEFT_OK;
}

static weft_result learn_all(struct weft__net *net, void *context)
{
    const struct registration *registration = context;
    const weft_comm *comm = registration->comm;
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        if (node_of_rank[rank] != node_of_rank[comm->rank])
            WEFT__TRY(weft__net_learn_region(net, rank, registration->number,
                                             &registration->all[rank].card));
    return WEFT_OK;
}

static weft_result unregister(struct weft__net *net, void *context)
{
    weft__net_unreg(net, ((const struct registration *)context)->number);
    return WEFT_OK;
}

/* Whoever could not says why itself. */
static weft_result check_introductions(const struct registration *registration)
{
    for (int32_t rank = 0; rank < registration->comm->num_ranks; rank++)
        if (registration->all[rank].result != WEFT_OK)
            return weft__error(WEFT_ERROR_UNSUPPORTED,
                               "rank %d cannot register memory with the network: %s", rank,
                               weft_result_string((weft_result)registration->all[rank].result));
    return WEFT_OK;
}

static weft_result introduce(weft_comm *comm, struct registration *registration)
{
    struct weft__progress *progress = comm->network->progress;
    const weft_result own = weft__progress_act(progress, register_part, registration);
    char reason[WEFT__NET_REASON_BYTES];
    snprintf(reason, sizeof(reason), "%s", own == WEFT_OK ? "" : weft__last_error());
    registration->own.result = own;
    weft_result result = weft__comm_all_gather(comm, &registration->own, sizeof(registration->own),
                                               registration->all);
    if (result == WEFT_OK)
        result = check_introductions(registration);
    if (result == WEFT_OK)
        result = weft__comm_agree(comm, weft__progress_act(progress, learn_all, registration),
                                  "learn of memory in the network");
    if (result != WEFT_OK && own == WEFT_OK)
        weft__progress_act(progress, unregister, registration);
    return result == WEFT_ERROR_UNSUPPORTED && own != WEFT_OK ? weft__error(result, "%s", reason)
                                                              : result;
}

weft_result weft__net_add_region(weft_comm *comm, const struct weft__net_part *part,
                                 uint64_t *place)
{
    struct registration registration = {.comm = comm, .part = part};
    struct offer *offers = calloc((size_t)comm->num_ranks, sizeof(*offers));
    registration.all = calloc((size_t)comm->num_ranks, sizeof(*registration.all));
    weft_result result = weft__comm_agree(
        comm,
        offers != NULL && registration.all != NULL
            ? WEFT_OK
            : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks),
        "have memory for what others tell");
    if (result == WEFT_OK && offers != NULL) /* the latter for clang-tidy, which cannot know */
        result = agree_on_number(comm, part, offers, &registration.number);
    if (result == WEFT_OK)
        result = introduce(comm, &registration);
    if (result == WEFT_OK)
        *place = weft__net_place(registration.number, 0);
    free(registration.all);
    free(offers);
    return result;
}

weft_result weft__net_add_staging(weft_comm *comm, void *memory, uint64_t num_bytes,
                                  uint64_t *place)
{
    const struct weft__net_part part = {memory, num_bytes, WEFT__NET_HOST_MEMORY};
    const weft_result result = weft__net_add_region(comm, &part, place);
    if (result != WEFT_ERROR_UNSUPPORTED)
        return result;
    weft__log(WEFT__LOG_INFO, comm->rank, "what is staged goes as messages: %s",
              weft__last_error());
    return WEFT_OK;
}

/* ---------------------------------------------------------------- the end */

static weft_result unregister_memory(struct weft__net *net, void *memory)
{
    const uint32_t number = weft__net_find_region(net, memory);
    if (number < WEFT__NET_MAX_REGIONS)
        weft__net_unreg(net, number);
    return WEFT_OK;
}

void weft__net_remove_region(weft_comm *comm, const void *memory)
{
    if (comm->network != NULL && comm->network->progress != NULL)
        weft__progress_act(comm->network->progress, unregister_memory, (void *)(uintptr_t)memory);
}
