/* SPDX-License-Identifier: MIT */
/* A rank on a GPU with collectives and a stream of the application. Functions return 0, or 1 when a
 * check has failed. */
#pragma once

#include "cuda/driver.h"

struct party {
    struct ranks_context *context;
    weft_comm *comm;
    weft_coll *coll;
    CUstream native;
    weft_stream *stream; /* wrapped */
};

int party_open(struct party *party, struct ranks_context *context, const weft_coll_config *config);
/* num_nodes as in weft_comm_config. */
int party_open_on_nodes(struct party *party, struct ranks_context *context, int32_t num_nodes,
                        const weft_coll_config *config);
int party_close(struct party *party);

/* From here to party_record_end what is enqueued on the stream becomes a graph, which that
 * makes. */
int party_record_begin(struct party *party);
int party_record_end(struct party *party, CUgraphExec *graph);

/* Word i of what `rank` gives in a round; integers, whose sum is then this. */
uint32_t party_word(uint64_t round, int32_t rank, uint32_t i);
uint32_t party_sum(const struct party *party, uint64_t round, uint32_t i);
