/* SPDX-License-Identifier: MIT */
/* Starts the rendezvous that a bootstrap or an id calls for. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "comm/rendezvous/bootstrap.h"
#include "comm/rendezvous/rendezvous.h"

enum { PATIENCE_MS = 3000 }; /* with a taken port of an id: no deadline is known */

/* Counts the communicators that this process has started at each meeting point. */
struct meeting_count {
    struct meeting_count *next;
    uint8_t nonce[WEFT__NONCE_BYTES];
    uint64_t num_communicators;
};

static struct {
    pthread_mutex_t mutex;
    struct meeting_count *first;
} counts = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static weft_result count_communicator(const struct weft__meeting_point *point, uint64_t *key)
{
    pthread_mutex_lock(&counts.mutex);
    struct meeting_count *count = counts.first;
    while (count != NULL && memcmp(count->nonce, point->nonce, sizeof(count->nonce)) != 0)
        count = count->next;
    if (count == NULL && (count = calloc(1, sizeof(*count))) != NULL) {
        memcpy(count->nonce, point->nonce, sizeof(count->nonce));
        count->next = counts.first;
        counts.first = count;
    }
    if (count != NULL)
        *key = count->num_communicators++;
    pthread_mutex_unlock(&counts.mutex);
    return count != NULL ? WEFT_OK : weft__no_memory("no memory for a meeting point");
}

weft_result weft__bootstrap_start(struct weft__bootstrap *bootstrap, uint32_t timeout_ms,
                                  uint64_t *key)
{
    *key = 0;
    if (bootstrap->num_ranks == 1)
        return WEFT_OK;
    weft_result result = WEFT_OK;
    int serves = bootstrap->rendezvous == WEFT__RENDEZVOUS_AT_RANK_0 && bootstrap->rank == 0;
    if (serves && bootstrap->trust == WEFT__TRUST_JOB)
        weft__log(WEFT__LOG_WARN, 0,
                  "only the job's id tells ranks on other hosts from strangers, who may guess it; "
                  "set WEFT_SECRET, on all hosts, to 32 random hexadecimal digits");
    if (serves)
        result = weft__rendezvous_serve(&bootstrap->point, WEFT__LISTEN_ON_REACHABLE, timeout_ms);
    return result == WEFT_OK ? count_communicator(&bootstrap->point, key) : result;
}

weft_result weft__unique_id_create(weft_unique_id *id)
{
    const char *address = weft__setting_text(WEFT__SETTING_ADDR);
    const char *name = weft__settings[WEFT__SETTING_ADDR].name;
    struct weft__meeting_point point = {0};
    weft__log_configure();
    if (address == NULL)
        address = WEFT__LOOPBACK;
    WEFT__TRY(weft__meeting_point_set_address(&point, name, address));
    WEFT__TRY(weft__random_bytes(point.nonce, sizeof(point.nonce)));
    WEFT__TRY(weft__rendezvous_serve(&point, WEFT__LISTEN_ON_ADDRESS, PATIENCE_MS));
    weft__meeting_point_to_id(&point, id);
    return WEFT_OK;
}

weft_result weft__unique_id_serve(const weft_unique_id *id)
{
    struct weft__meeting_point point;
    weft__log_configure();
    weft_result result = weft__meeting_point_from_id(&point, id);
    return result == WEFT_OK
               ? weft__rendezvous_serve(&point, WEFT__LISTEN_FOR_OTHER_HOSTS, PATIENCE_MS)
               : result;
}
