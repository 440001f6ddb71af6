/* SPDX-License-Identifier: MIT */
/* Why an operation goes as it does, and how long that is expected to take over several nodes. */
#include <math.h>
#include <stdio.h>

#include "coll/coll.h"
#include "comm/host/settings.h"

static double link_gbps_of(const weft_comm *comm)
{
    struct weft__links links = {0};
    if (weft__machine_of(comm)->describe_links != NULL)
        weft__machine_of(comm)->describe_links(comm, &links);
    return links.gbps;
}

void weft__coll_measured_device(const weft_comm *comm, char name[WEFT__TUNING_NAME_BYTES])
{
    const struct weft__machine *machine = weft__machine_of(comm);
    struct weft__links links = {0};
    weft_device_info device = {0};
    if (machine->describe_links != NULL)
        machine->describe_links(comm, &links);
    /* With more streams launches have fewer blocks than those that were measured. */
    if (!links.is_measured || comm->num_streams > WEFT__USUAL_STREAMS ||
        machine->describe_device(comm->hooks->device_of(comm), &device) != WEFT_OK)
        device.name[0] = '\0';
    snprintf(name, WEFT__TUNING_NAME_BYTES, "%s", device.name);
}

static void expect_between_nodes(const weft_coll *coll, weft_collective collective,
                                 uint64_t row_bytes, weft_coll_explanation *explanation)
{
    const struct weft__coll_work work = {collective, explanation->algorithm, row_bytes,
                                         coll->comm->num_ranks};
    struct weft__coll_expectation expectation;
    explanation->net_latency_us = weft__coll_latency_us(&coll->wire);
    explanation->net_is_measured = coll->wire.latency_us > 0;
    explanation->net_gbps = coll->wire.port_gbps;
    explanation->num_hops = (int32_t)ceil(weft__coll_hops(&work, coll->comm->topology.num_nodes));
    if (!weft__coll_expect_by(coll, &work, &expectation))
        return;
    explanation->latency_us = expectation.latency_us;
    explanation->expected_us = expectation.latency_us + expectation.transfer_us;
    explanation->link_bytes = expectation.link_bytes;
}

static void name_table(const weft_coll *coll, const struct weft__tuning_row *row,
                       weft_coll_explanation *explanation)
{
    const char *name = row->source == WEFT__TUNING_SHIPPED ? coll->device : coll->tuning.path;
    explanation->table_line = row->line;
    explanation->table_max_bytes = row->max_bytes;
    snprintf(explanation->table, sizeof explanation->table, "%s", name);
}

weft_result weft__coll_explain(const weft_coll *coll, weft_collective collective,
                               weft_algorithm algorithm, uint64_t row_bytes,
                               weft_coll_explanation *explanation)
{
    struct weft__coll_choice choice = {.algorithm = algorithm, .reason = WEFT_COLL_PINNED};
    if (algorithm == WEFT_ALGORITHM_AUTO)
        choice = weft__coll_choose(coll, collective, row_bytes);
    WEFT__TRY(weft__coll_check_algorithm(coll, collective, choice.algorithm, row_bytes));
    explanation->algorithm = choice.algorithm;
    explanation->reason = choice.reason;
    explanation->num_blocks = coll->num_blocks > 0 ? coll->num_blocks : choice.num_blocks;
    explanation->num_warps = coll->num_warps > 0 ? coll->num_warps : choice.num_warps;
    if (choice.row != NULL)
        name_table(coll, choice.row, explanation);
    if (coll->comm->topology.num_nodes > 1)
        expect_between_nodes(coll, collective, row_bytes, explanation);
    else
        explanation->link_gbps = link_gbps_of(coll->comm);
    return WEFT_OK;
}
