/* SPDX-License-Identifier: MIT */
/* One rank with a weft_coll of each setup: every algorithm pinned, and chosen by the library, with
 * large and small buffers, with few and many warps. Functions return 0, or 1 when a check has
 * failed. */
#pragma once

#include "oracle/coll_case.h"

enum { COLL_NUM_SETUPS = 7, COLL_ARENA_BYTES = 24 << 20 };

struct coll_setup {
    const char *name;
    enum coll_default { COLL_CONFIGURED, COLL_DEFAULT } kind; /* the latter with config NULL */
    weft_coll_config config;
};

/* Where more than one rank must share a GPU, grids are small, so that the blocks of all fit at
 * once. */
struct coll_setup coll_setup_of(int idx, int32_t num_ranks, const struct coll_nodes *nodes);
/* Whether the algorithm that the setup pins can do it. */
int coll_setup_fits(const struct coll_setup *setup, const struct coll_case *spec);
/* Reductions have the order of the setup's algorithm. */
void coll_setup_order(const struct coll_setup *setup, struct coll_case *spec);
/* Where arrays are larger than the staging buffer, makes all ranks alike in where they have them;
 * those of all_to_all_v must then be in the heap. The order is the setup's, too. */
void coll_setup_adapt(const struct coll_setup *setup, struct coll_case *spec);

struct coll_rank {
    struct ep_rank base;
    struct coll_setup setups[COLL_NUM_SETUPS];
    weft_coll *colls[COLL_NUM_SETUPS]; /* over nodes without algorithms */
};

int coll_rank_open(struct coll_rank *self, struct ranks_context *context);
/* Makes a communicator over nodes of ranks that are some of the context's: of the others *comm is
 * NULL. The context's rank and number of ranks become those of *comm. */
int coll_nodes_open(struct ranks_context *context, const struct coll_nodes *nodes,
                    int32_t num_ranks, weft_comm **comm);
/* The same on a communicator that exists, and is closed with the rest. */
int coll_rank_open_on(struct coll_rank *self, struct ranks_context *context, weft_comm *comm,
                      const struct coll_nodes *nodes, uint64_t arena_bytes);
int coll_rank_close(struct coll_rank *self);

weft_result coll_setup_create(weft_comm *comm, const struct coll_setup *setup, weft_coll **coll);
