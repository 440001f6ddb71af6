/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/routing.h"

struct wp_layout_args {
    struct wp_routing routing; /* written: routes, chunk_base, send_rows, entry_selections, and
                                  * of nodes the like */
    struct wp_placement placement;
    weft_dtype index_type;
    const void *topk_idx;
    /* Or, in place of these two, [num_tokens][num_ranks] and [num_entries]. */
    const uint8_t *tokens_to_ranks;
    const int32_t *selections_per_entry;
    uint32_t *num_blocks_done; /* zero between launches */
    int32_t num_entries;       /* of the placement */
    weft_ep_order order;       /* WEFT_ORDER_BY_CHOICE: of topk_idx */
    /* [num_entries] The choices are counted here while the launch runs; zero between launches. */
    int32_t *selections;
    const int32_t *node_of_rank;
    int32_t num_nodes;
    /* Results for the user, each may be null. */
    int32_t *num_tokens_per_rank;
    int32_t *num_tokens_per_node;
    int32_t *num_tokens_per_expert;
    uint8_t *is_token_in_rank;
};
