/* SPDX-License-Identifier: MIT */
#include "cuda/party.h"

int party_open(struct party *party, struct ranks_context *context, const weft_coll_config *config)
{
    return party_open_on_nodes(party, context, 0, config);
}

int party_open_on_nodes(struct party *party, struct ranks_context *context, int32_t num_nodes,
                        const weft_coll_config *config)
{
    *party = (struct party){.context = context};
    if (driver_use_device(context->rank))
        return 1;
    CHECK_OK(ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .num_nodes = num_nodes),
                               &party->comm));
    CHECK_OK(weft_coll_create(party->comm, config, &party->coll));
    DRIVER_CHECK(driver.stream_create(&party->native, CU_STREAM_NON_BLOCKING));
    CHECK_OK(weft_stream_wrap(party->comm, party->native, &party->stream));
    return 0;
}

int party_close(struct party *party)
{
    struct ranks_context *context = party->context;
    CHECK_OK(weft_stream_destroy(party->stream));
    DRIVER_CHECK(driver.stream_destroy(party->native));
    CHECK_OK(weft_comm_host_barrier(party->comm)); /* heap memory goes back */
    CHECK_OK(weft_coll_destroy(party->coll));
    CHECK_OK(weft_comm_destroy(party->comm));
    return driver_leave_device(context->rank);
}

int party_record_begin(struct party *party)
{
    DRIVER_CHECK(driver.stream_begin_capture(party->native, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    return 0;
}

int party_record_end(struct party *party, CUgraphExec *graph_exec)
{
    CUgraph graph = NULL;
    DRIVER_CHECK(driver.stream_end_capture(party->native, &graph));
    CHECK(graph != NULL, "the capture gave no graph");
    DRIVER_CHECK(driver.graph_instantiate(graph_exec, graph, 0));
    DRIVER_CHECK(driver.graph_destroy(graph));
    return 0;
}

uint32_t party_word(uint64_t round, int32_t rank, uint32_t i)
{
    return (uint32_t)round * 1000003u + (uint32_t)rank * 7919u + i * 2654435761u;
}

uint32_t party_sum(const struct party *party, uint64_t round, uint32_t i)
{
    uint32_t sum = 0;
    for (int32_t rank = 0; rank < party->context->num_ranks; rank++)
        sum += party_word(round, rank, i);
    return sum;
}
