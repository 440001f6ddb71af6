/* SPDX-License-Identifier: MIT */
#include "net_job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLEEP_MS = 2 * DEADLINE_MS /* so that whoever is not woken is too late */ };

int failed_line;

size_t heap_bytes(void)
{
    return (size_t)NUM_RANKS * NUM_POSTERS * NUM_PUTS * SLOT_BYTES / 4;
}

static void note_failure(void *context, int32_t peer, weft_result result, const char *message)
{
    struct rank *rank = context;
    if (peer < 0) { /* a request of its own */
        atomic_store(&rank->own_failure, result);
        atomic_fetch_add(&rank->num_own_failures, 1);
        return;
    }
    snprintf(rank->message, sizeof(rank->message), "%s", message);
    atomic_store(&rank->failed_peer, peer);
    atomic_fetch_add(&rank->num_failures, 1);
}

static void note_peer_failure(void *context, int32_t peer, const char *message)
{
    note_failure(context, peer, WEFT_ERROR_RANK_FAILED, message);
}

struct connection {
    struct weft__net *net;
    const struct weft__net_blob *blobs;
    weft_result result;
    pthread_t thread;
};

static void *connect_one(void *argument)
{
    struct connection *connection = argument;
    connection->result = weft__net_connect(connection->net, connection->blobs);
    return NULL;
}

/* Connecting may wait for the others. */
static void connect_together(struct weft__net *const *nets, const struct weft__net_blob *blobs)
{
    struct connection connections[NUM_RANKS];
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        connections[rank] = (struct connection){.net = nets[rank], .blobs = blobs};
        pthread_create(&connections[rank].thread, NULL, connect_one, &connections[rank]);
    }
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        pthread_join(connections[rank].thread, NULL);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        CHECK(connections[rank].result == WEFT_OK);
}

static void share_memory(struct job *job, struct weft__net *const *nets)
{
    for (int32_t index = 0; index < NUM_RANKS; index++) {
        struct rank *rank = &job->ranks[index];
        const struct {
            void *memory;
            size_t num_bytes;
        } regions[] = {{rank->heap, heap_bytes()},
                       {rank->staging, heap_bytes()},
                       {rank->words, sizeof(rank->words)}};
        for (uint32_t region = 0; region < 3; region++)
            CHECK(weft__net_reg(nets[index], region, regions[region].memory,
                                regions[region].num_bytes, WEFT__NET_HOST_MEMORY) == WEFT_OK);
    }
    for (int32_t own = 0; own < NUM_RANKS; own++)
        for (int32_t peer = 0; peer < NUM_RANKS; peer++)
            for (uint32_t region = 0; region < 3 && peer != own; region++) {
                struct weft__net_region_card card;
                weft__net_tell_region(nets[peer], region, &card);
                CHECK(weft__net_learn_region(nets[own], peer, region, &card) == WEFT_OK);
            }
}

static struct weft__work_queue *make_device_queue(uint32_t num_slots)
{
    const size_t bytes = sizeof(struct weft__work_queue) + num_slots * sizeof(struct wp_access);
    struct weft__work_queue *queue = aligned_alloc(WP_ACCESS_BYTES, bytes);
    if (queue != NULL)
        memset(queue, 0, bytes);
    return queue;
}

void start_job(struct job *job, const char *engine, uint32_t num_device_slots)
{
    struct weft__net *nets[NUM_RANKS];
    struct weft__net_blob blobs[NUM_RANKS];
    memset(job, 0, sizeof(*job));
    for (int32_t index = 0; index < NUM_RANKS; index++) {
        struct rank *rank = &job->ranks[index];
        const struct weft__net_config config = {.engine = engine,
                                                .rank = index,
                                                .num_ranks = NUM_RANKS,
                                                .transports = "tcp",
                                                .timeout_ms = DEADLINE_MS};
        *rank = (struct rank){.job = job, .rank = index, .failed_peer = -1};
        rank->heap = calloc(1, heap_bytes());
        rank->staging = calloc(1, heap_bytes());
        CHECK(rank->heap != NULL && rank->staging != NULL);
        if (num_device_slots > 0)
            rank->device_queue = make_device_queue(num_device_slots);
        CHECK(weft__status_init(&rank->status, NUM_RANKS) == WEFT_OK);
        CHECK(weft__net_open(&config, &nets[index]) == WEFT_OK);
        CHECK(weft__net_address(nets[index], &blobs[index]) == WEFT_OK);
    }
    connect_together(nets, blobs);
    share_memory(job, nets);
    for (int32_t index = 0; index < NUM_RANKS; index++) {
        const struct weft__progress_options options = {.net = nets[index],
                                                       .rank = index,
                                                       .num_ranks = NUM_RANKS,
                                                       .num_slots = NUM_QUEUE_SLOTS,
                                                       .sleep_ms = SLEEP_MS,
                                                       .post_timeout_ms = POST_TIMEOUT_MS,
                                                       .device_queue =
                                                           job->ranks[index].device_queue,
                                                       .num_device_slots = num_device_slots,
                                                       .status = &job->ranks[index].status,
                                                       .on_failure = note_failure,
                                                       .on_peer_failure = note_peer_failure,
                                                       .context = &job->ranks[index]};
        CHECK(weft__progress_start(&options, &job->ranks[index].progress) == WEFT_OK);
    }
}

void stop_job(struct job *job)
{
    for (int32_t index = 0; index < NUM_RANKS; index++)
        if (job->ranks[index].progress != NULL)
            weft__progress_stop(job->ranks[index].progress);
    for (int32_t index = 0; index < NUM_RANKS; index++) {
        free(job->ranks[index].heap);
        free(job->ranks[index].staging);
        free(job->ranks[index].device_queue);
        weft__status_destroy(&job->ranks[index].status);
    }
}
