/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/link_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/rendezvous/connect_retry.h"
#include "comm/rendezvous/identity.h"

enum {
    GOODBYE_MS = 1000, /* for the rendezvous to pass a goodbye on */
    GRACE_MS = 2000    /* the rendezvous knows more about a timeout: it goes first */
};

static void wake_monitor(struct weft__link *link)
{
    const uint64_t one = 1;
    /* It can only fail when the counter is full: then the monitor is awake. */
    (void)!write(link->wake_fd, &one, sizeof(one));
}

void weft__link_send(struct weft__link *link, struct weft__message *message)
{
    if (message == NULL)
        return;
    pthread_mutex_lock(&link->send_mutex);
    /* A broken connection is the monitor's to notice. */
    weft__wire_send(&link->wire, message);
    weft__message_release(message);
    const int is_left = weft__wire_has_output(&link->wire);
    pthread_mutex_unlock(&link->send_mutex);
    if (is_left)
        wake_monitor(link);
}

/* ---------------------------------------------------------------- all-gather */

static void begin_gather(struct weft__link *link, const struct weft__share *share)
{
    pthread_mutex_lock(&link->status->mutex);
    link->gather.sequence++;
    link->gather.blob_bytes = share->bytes;
    link->gather.recv = share->recv;
    link->gather.state = WEFT__GATHER_PENDING;
    pthread_mutex_unlock(&link->status->mutex);
}

enum gather_outcome {
    OUTCOME_DONE,
    OUTCOME_FAILED, /* the status tells why */
    OUTCOME_SERVER_GONE,
    OUTCOME_EXPIRED
};

static enum gather_outcome wait_for_gather(struct weft__link *link)
{
    struct weft__status *status = link->status;
    enum gather_outcome outcome = OUTCOME_EXPIRED;
    int64_t deadline_ns = weft__now_ns() + ((int64_t)link->timeout_ms + GRACE_MS) * WEFT__NS_PER_MS;
    const struct timespec deadline = weft__timespec(deadline_ns);
    pthread_mutex_lock(&status->mutex);
    do {
        if (link->gather.state == WEFT__GATHER_DONE)
            outcome = OUTCOME_DONE;
        else if (atomic_load(&status->result) != WEFT_OK)
            outcome = OUTCOME_FAILED;
        else if (link->server_state == WEFT__SERVER_GONE)
            outcome = OUTCOME_SERVER_GONE;
        else
            pthread_cond_timedwait(&status->changed, &status->mutex, &deadline);
    } while (outcome == OUTCOME_EXPIRED && weft__now_ns() < deadline_ns);
    link->gather.state = WEFT__GATHER_DONE; /* from here on recv is not written */
    pthread_mutex_unlock(&status->mutex);
    return outcome;
}

static weft_result fail_gather(struct weft__link *link, enum gather_outcome outcome)
{
    if (outcome == OUTCOME_SERVER_GONE) {
        int32_t host = 0;
        while (!weft__identity_is_same_process(&link->table[host], &link->server))
            host++;
        weft__status_fail(link->status, WEFT_ERROR_RANK_FAILED, host,
                          "rank %d has left the communicator, and with it the rendezvous", host);
    } else if (outcome == OUTCOME_EXPIRED) {
        weft__status_fail(link->status, WEFT_ERROR_TIMEOUT, -1,
                          "the rendezvous (pid %d) does not answer within %u ms", link->server.pid,
                          link->timeout_ms);
    }
    return weft__status_check(link->status);
}

/* The spare message has been sent when it is needed again, since its gather is over then. */
static struct weft__message *apology(struct weft__link *link, struct weft__gather_header header)
{
    struct weft__message *message = link->spare_gather;
    header.result = WEFT_ERROR_OUT_OF_MEMORY;
    char *text = (char *)message->body + sizeof(header);
    snprintf(text, WEFT__MAX_TEXT_BYTES, "rank %d has no memory to send %llu bytes", link->rank,
             (unsigned long long)header.blob_bytes);
    header.blob_bytes = WEFT__MAX_TEXT_BYTES;
    memcpy(message->body, &header, sizeof(header));
    message->num_references++;
    return message;
}

/* This rank's contribution: its blob, or why it has none. */
static struct weft__message *contribution(struct weft__link *link, const struct weft__share *share)
{
    const int is_fit = share->result == WEFT_OK;
    const void *blob = is_fit ? share->send : share->reason;
    const struct weft__gather_header header = {.sequence = link->gather.sequence,
                                               .blob_bytes =
                                                   is_fit ? share->bytes : strlen(share->reason),
                                               .result = share->result,
                                               .failed_rank = WEFT__NOBODY,
                                               .step = share->step};
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_GATHER, &header, sizeof(header), blob, header.blob_bytes);
    return message != NULL ? message : apology(link, header);
}

weft_result weft__link_all_gather(struct weft__link *link, struct weft__share *share)
{
    WEFT__TRY(weft__status_check(link->status));
    weft__standing_note_exchange(link->standing, share->step.call);
    weft__log(WEFT__LOG_DEBUG, link->rank, "%s, exchange %d of %zu bytes",
              weft__call_name(share->step.call), share->step.step, share->bytes);
    begin_gather(link, share);
    weft__link_send(link, contribution(link, share));
    weft__standing_hold(
        (struct weft__hold){.kind = WEFT__HELD_BY_HOSTS, .standing = link->standing});
    enum gather_outcome outcome = wait_for_gather(link);
    weft__standing_release();
    if (outcome != OUTCOME_DONE)
        return fail_gather(link, outcome);
    if (link->gather.result == WEFT_OK)
        return WEFT_OK;
    share->failed_rank = link->gather.failed_rank;
    return weft__error(link->gather.result, "%.*s", (int)sizeof(link->gather.text),
                       link->gather.text);
}

/* Without memory the spare message is sent, once: a failure is final. */
void weft__link_tell_failure(struct weft__link *link)
{
    const struct weft__status *status = link->status;
    struct weft__failure_notice notice = {.result = atomic_load(&status->result),
                                          .rank = status->failed_rank};
    snprintf(notice.text, sizeof(notice.text), "%s", status->message);
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_GIVE_UP, &notice, sizeof(notice), NULL, 0);
    if (message == NULL) {
        pthread_mutex_lock(&link->send_mutex);
        message = link->spare_notice;
        link->spare_notice = NULL;
        pthread_mutex_unlock(&link->send_mutex);
    }
    if (message != NULL)
        memcpy(message->body, &notice, sizeof(notice));
    weft__link_send(link, message);
}

void weft__link_tell_absence(struct weft__link *link, const struct weft__absence *absence)
{
    weft__link_send(link,
                    weft__message_create(WEFT__FRAME_ABSENCE, absence, sizeof(*absence), NULL, 0));
}

/* ---------------------------------------------------------------- questions */

enum weft__ask_result weft__link_ask(struct weft__link *link, const struct weft__question *question,
                                     int64_t deadline_ns, struct weft__wait_list *waits)
{
    struct weft__open_question open;
    struct weft__question numbered = *question;
    weft__questions_open(&link->questions, &open, question->asked);
    numbered.number = open.number;
    weft__link_send(
        link, weft__message_create(WEFT__FRAME_QUESTION, &numbered, sizeof(numbered), NULL, 0));
    enum weft__ask_result result = weft__questions_await(&link->questions, &open, deadline_ns);
    if (result == WEFT__ASK_ANSWERED)
        *waits = open.answer;
    return result;
}

int32_t weft__link_rank_of_server(const struct weft__link *link)
{
    for (int32_t rank = 0; rank < link->num_ranks; rank++)
        if (weft__identity_is_same_process(&link->table[rank], &link->server))
            return rank;
    return WEFT__NOBODY;
}

const uint64_t *weft__link_mark_of_server(const struct weft__link *link)
{
    return link->server.socket_id;
}

int weft__link_fd(const struct weft__link *link)
{
    return link->wire.fd;
}

/* ---------------------------------------------------------------- opening and closing */

static void free_link(struct weft__link *link)
{
    weft__wire_close(&link->wire);
    if (link->wake_fd >= 0)
        close(link->wake_fd);
    if (link->process_fd >= 0)
        close(link->process_fd);
    pthread_mutex_destroy(&link->send_mutex);
    free(link->spare_gather);
    free(link->spare_notice);
    free(link->goodbye);
    free(link->table);
    free(link);
}

void weft__link_close(struct weft__link *link)
{
    weft__link_leave(link);
    const struct weft__wait_list last =
        weft__standing_answer(link->standing, link->waits, &(struct weft__wait){.exchange = 0});
    struct weft__message *goodbye = link->goodbye;
    link->goodbye = NULL;
    memcpy(goodbye->body, &last, sizeof(last));
    pthread_mutex_lock(&link->send_mutex);
    link->close_ns =
        weft__now_ns() + GOODBYE_MS * WEFT__NS_PER_MS; /* from here on its end is expected */
    pthread_mutex_unlock(&link->send_mutex);
    wake_monitor(link);
    weft__link_send(link, goodbye);
    pthread_join(link->monitor, NULL);
    free_link(link);
}

static weft_result make_spares(struct weft__link *link)
{
    const size_t text_bytes = WEFT__MAX_TEXT_BYTES;
    link->spare_gather = weft__message_create(WEFT__FRAME_GATHER, NULL, 0, NULL,
                                              sizeof(struct weft__gather_header) + text_bytes);
    link->spare_notice = weft__message_create(WEFT__FRAME_GIVE_UP, NULL, 0, NULL,
                                              sizeof(struct weft__failure_notice));
    link->goodbye =
        weft__message_create(WEFT__FRAME_GOODBYE, NULL, 0, NULL, sizeof(struct weft__wait_list));
    return link->spare_gather != NULL && link->spare_notice != NULL && link->goodbye != NULL
               ? WEFT_OK
               : weft__no_memory("no memory for a connection");
}

static weft_result start(struct weft__link *link, const struct weft__link_options *options,
                         struct weft__identity *table)
{
    struct weft__hello *hello = options->hello;
    size_t table_bytes = (size_t)hello->num_ranks * sizeof(*table);
    hello->magic = WEFT__HELLO_MAGIC;
    hello->version = WEFT__HELLO_VERSION;
    memcpy(hello->nonce, options->point->nonce, sizeof(hello->nonce));
    link->wake_fd = weft__descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (link->wake_fd < 0)
        return weft__system_error("eventfd");
    link->table = malloc(table_bytes);
    WEFT__CHECK_MEMORY(link->table, "no memory for %d ranks", hello->num_ranks);
    WEFT__TRY(make_spares(link));
    const struct weft__connection_request request = {
        .point = options->point, .hello = hello, .watch = options->watch};
    weft_result result = weft__connect(&request, &link->wire, &link->server, link->table);
    if (result != WEFT_OK)
        return result;
    memcpy(table, link->table, table_bytes);
    link->process_fd = weft__identity_watch(&hello->identity, &link->server);
    weft__heartbeat_start(&link->heartbeat, hello->heartbeat_ms,
                          link->process_fd >= 0 ? link->server.pid : 0, weft__now_ns());
    WEFT__TRY(weft__thread_start(&link->monitor, weft__link_monitor, link));
    weft__link_enter(link);
    return WEFT_OK;
}

weft_result weft__link_open(const struct weft__link_options *options, struct weft__identity *table,
                            struct weft__link **opened)
{
    struct weft__link *link = calloc(1, sizeof(*link));
    WEFT__CHECK_MEMORY(link, "no memory for a connection");
    link->rank = options->hello->rank;
    link->num_ranks = options->hello->num_ranks;
    link->timeout_ms = options->hello->timeout_ms;
    link->point = options->point;
    link->status = options->status;
    link->questions.status = options->status;
    link->waits = options->waits;
    link->standing = options->standing;
    link->comm = options->comm;
    link->wire.fd = -1;
    link->process_fd = -1;
    link->close_ns = INT64_MAX;
    link->gather.state = WEFT__GATHER_DONE;
    pthread_mutex_init(&link->send_mutex, NULL);
    weft_result result = start(link, options, table);
    if (result == WEFT_OK)
        *opened = link;
    else
        free_link(link);
    return result;
}
