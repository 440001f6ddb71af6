/* SPDX-License-Identifier: MIT */
/* Regions of a communicator's network that come and go while it lives. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/host/log.h"
#include "net/attach.h"

/* ---------------------------------------------------------------- the number */

static weft_result look_for_numbers(struct weft__net *net, void *context)
{
    *(uint32_t *)context = weft__net_free_regions(net);
    return WEFT_OK;
}

/* Ranks may have removed regions in different orders: the lowest number that is free on all. */
static weft_result agree_on_number(weft_comm *comm, const struct weft__net_part *part,
                                   uint32_t *number)
{
    uint32_t free_numbers = 0;
    weft_result result = WEFT_OK;
    weft__progress_act(comm->network->progress, look_for_numbers, &free_numbers);
    if (part->memory == NULL)
        result = weft__error(WEFT_ERROR_UNSUPPORTED, "no such memory for the network");
    uint32_t *all =
        weft__comm_gather_new(comm, result, &free_numbers, sizeof(free_numbers), &result);
    if (all == NULL)
        return result;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        free_numbers &= all[rank];
    free(all);
    if (free_numbers == 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "the network has %d regions, and takes no more",
                           WEFT__NET_MAX_REGIONS);
    *number = (uint32_t)__builtin_ctz(free_numbers);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- the region */

struct registration {
    const weft_comm *comm;
    const struct weft__net_part *part; /* NULL: a step of the heap */
    uint64_t begin, num_bytes;         /* of the step */
    uint32_t number;
    struct registered {
        struct weft__net_region_card net;
        struct weft__nic_key nic;
    } own, *all; /* [num_ranks] */
};

/* Steps of the heap are for writes of the engine, and for the NIC. */
static int is_for_engine(const struct registration *registration)
{
    return registration->part != NULL || registration->comm->network->has_writes;
}

/* The parts of others than the heap are on GPUs, whose programs post to no NIC yet. */
static struct weft__nic_adapter *nic_for(const struct registration *registration)
{
    return registration->part == NULL ? registration->comm->network->nic : NULL;
}

static weft_result register_with_engine(struct weft__net *net,
                                        const struct registration *registration)
{
    const struct weft__net_part *part = registration->part;
    if (part != NULL)
        return weft__net_reg(net, registration->number, part->memory, part->num_bytes, part->kind);
    return weft__net_reg_step(net, registration->number,
                              weft__net_place(WEFT__NET_HEAP_REGION, registration->begin),
                              registration->num_bytes);
}

static weft_result register_with_both(struct weft__net *net, struct registration *registration)
{
    struct weft__nic_adapter *nic = nic_for(registration);
    if (is_for_engine(registration)) {
        WEFT__TRY(register_with_engine(net, registration));
        weft__net_tell_region(net, registration->number, &registration->own.net);
    }
    const weft_result result =
        nic == NULL ? WEFT_OK
                    : weft__nic_adapter_add_step(nic, registration->begin, registration->num_bytes,
                                                 &registration->own.nic);
    if (result != WEFT_OK && is_for_engine(registration))
        weft__net_unreg(net, registration->number);
    return result;
}

static weft_result register_part(struct weft__net *net, void *context)
{
    char reason[WEFT__NET_REASON_BYTES];
    if (register_with_both(net, context) == WEFT_OK)
        return WEFT_OK;
    snprintf(reason, sizeof(reason), "%s", weft__last_error());
    return weft__error(WEFT_ERROR_UNSUPPORTED, "cannot register memory with the network: %s",
                       reason);
}

static weft_result learn_all(struct weft__net *net, void *context)
{
    const struct registration *registration = context;
    const weft_comm *comm = registration->comm;
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    struct weft__nic_adapter *nic = nic_for(registration);
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (node_of_rank[rank] == node_of_rank[comm->rank])
            continue;
        if (is_for_engine(registration))
            WEFT__TRY(weft__net_learn_region(net, rank, registration->number,
                                             &registration->all[rank].net));
        if (nic != NULL)
            weft__nic_adapter_learn_key(nic, rank, &registration->all[rank].nic);
    }
    return WEFT_OK;
}

static weft_result open_step(struct weft__net *net, void *context)
{
    (void)net;
    if (nic_for(context) != NULL)
        weft__nic_adapter_open_step(nic_for(context));
    return WEFT_OK;
}

static weft_result unregister(struct weft__net *net, void *context)
{
    const struct registration *registration = context;
    if (is_for_engine(registration))
        weft__net_unreg(net, registration->number);
    if (nic_for(registration) != NULL)
        weft__nic_adapter_drop_step(nic_for(registration));
    return WEFT_OK;
}

/* All ranks have registered their part and know those of the others, or none has. */
static weft_result introduce(weft_comm *comm, struct registration *registration)
{
    struct weft__progress *progress = comm->network->progress;
    weft_result result;
    const weft_result own = weft__progress_act(progress, register_part, registration);
    registration->all =
        weft__comm_gather_new(comm, own, &registration->own, sizeof(registration->own), &result);
    if (result == WEFT_OK)
        result = weft__comm_agree(comm, weft__progress_act(progress, learn_all, registration),
                                  "learn of memory in the network");
    if (own == WEFT_OK)
        weft__progress_act(progress, result == WEFT_OK ? open_step : unregister, registration);
    free(registration->all);
    return result;
}

weft_result weft__net_add_region(weft_comm *comm, const struct weft__net_part *part,
                                 uint64_t *place)
{
    struct registration registration = {.comm = comm, .part = part};
    WEFT__TRY(agree_on_number(comm, part, &registration.number));
    WEFT__TRY(introduce(comm, &registration));
    *place = weft__net_place(registration.number, 0);
    return WEFT_OK;
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

/* ---------------------------------------------------------------- steps of the heap */

static weft_result introduce_step(weft_comm *comm, uint64_t begin, uint64_t end)
{
    struct weft__network *network = comm->network;
    struct registration registration = {.comm = comm,
                                        .begin = begin,
                                        .num_bytes = end - begin,
                                        .number = WEFT__NET_MAX_REGIONS + network->num_steps};
    if (network->has_writes && network->num_steps == WEFT__NET_MAX_STEPS)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "the heap has grown in more than %d steps",
                           WEFT__NET_MAX_STEPS);
    WEFT__TRY(introduce(comm, &registration));
    network->num_steps++;
    return WEFT_OK;
}

weft_result weft__net_add_step(weft_comm *comm)
{
    const uint64_t begin = comm->network->heap_bytes;
    const uint64_t end = atomic_load(weft__heap_backed_bytes(comm->heap));
    if (end == begin)
        return WEFT_OK;
    const weft_result result = introduce_step(comm, begin, end);
    if (result != WEFT_OK && comm->network->nic != NULL)
        return result;
    comm->network->heap_bytes = end;
    if (result == WEFT_OK)
        return WEFT_OK;
    weft__log(WEFT__LOG_WARN, comm->rank,
              "puts to bytes %llu to %llu of the heap go in messages: %s",
              (unsigned long long)begin, (unsigned long long)end, weft__last_error());
    return weft__status_check(&comm->status);
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
