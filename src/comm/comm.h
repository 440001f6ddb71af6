/* SPDX-License-Identifier: MIT */
/* Inside of a communicator: who takes part, and what the layers above may use of it. */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H

#include "comm/error.h"
#include "comm/heap.h"
#include "comm/meeting_point.h"
#include "comm/status.h"
#include "comm/topology.h"
#include "weft.h"

struct weft__link;     /* the connection to the rendezvous, and its monitor thread */
struct weft__exchange; /* host side of device signals, of a layer above */

struct weft_comm {
    int32_t rank;
    int32_t num_ranks;
    uint32_t timeout_ms;
    struct weft__topology topology;
    struct weft__status status;
    struct weft__link *link;
    struct weft__heap *heap;
    struct weft__exchange *barrier;   /* of weft_barrier: made and destroyed by the api layer */
    struct weft__meeting_point point; /* where the ranks met; those of a split meet there too */
    uint64_t key;                     /* of this communicator at that point */
    int32_t num_splits;               /* part of the key of the next split */
};

/* The work behind weft_comm_create, _create_from_env, _split and _destroy, without the barrier. */
weft_result weft__comm_create(const weft_unique_id *id, int32_t rank, int32_t num_ranks,
                              const weft_comm_config *config, weft_comm **comm);
weft_result weft__comm_create_from_env(const weft_comm_config *config, weft_comm **comm);
weft_result weft__comm_split(weft_comm *comm, int32_t color, int32_t key,
                             const weft_comm_config *config, weft_comm **child);
void weft__comm_destroy(weft_comm *comm);

/* Collective, host side: recv[num_ranks][bytes]. Fails at once when a rank dies or after the
 * deadline, naming the ranks that did not come. */
weft_result weft__comm_all_gather(weft_comm *comm, const void *send, size_t bytes, void *recv);

/* Ends every wait of every rank of comm. From any thread. */
void weft__comm_abort(weft_comm *comm);
/* The same for a failure that the status holds already. */
void weft__comm_tell_failure(weft_comm *comm);

#endif
