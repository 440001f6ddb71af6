/* SPDX-License-Identifier: MIT */
/* The monitor: what the rendezvous tells, and that it is gone. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/rendezvous/identity.h"
#include "comm/rendezvous/link_internal.h"

/* ---------------------------------------------------------------- news */

static enum weft__wire_result take_gathered(struct weft__link *link,
                                            const struct weft__frame *frame)
{
    struct weft__gather_header header;
    if (frame->body_bytes < sizeof(header))
        return WEFT__WIRE_GARBAGE;
    memcpy(&header, frame->body, sizeof(header));
    const unsigned char *blobs = frame->body + sizeof(header);
    size_t blobs_bytes = frame->body_bytes - sizeof(header);
    enum weft__wire_result verdict = WEFT__WIRE_OK;
    pthread_mutex_lock(&link->status->mutex);
    /* A caller that gave up no longer has the memory for it. */
    if (link->gather.state == WEFT__GATHER_PENDING && header.sequence == link->gather.sequence) {
        size_t expected_bytes = header.result == WEFT_OK
                                    ? (size_t)link->num_ranks * link->gather.blob_bytes
                                    : sizeof(link->gather.text);
        void *into = header.result == WEFT_OK ? link->gather.recv : link->gather.text;
        if (blobs_bytes != expected_bytes)
            verdict = WEFT__WIRE_GARBAGE;
        else if (blobs_bytes > 0)
            memcpy(into, blobs, blobs_bytes);
        link->gather.result = (weft_result)header.result;
        link->gather.failed_rank = header.failed_rank;
        link->gather.state = verdict == WEFT__WIRE_OK ? WEFT__GATHER_DONE : WEFT__GATHER_PENDING;
        pthread_cond_broadcast(&link->status->changed);
    }
    pthread_mutex_unlock(&link->status->mutex);
    return verdict;
}

/* If it is this one, which was stopped and goes on, its communicator has failed in any case: the
 * others go on without it. */
static void lose_silent_rank(struct weft__link *link, const struct weft__rank_state_notice *notice)
{
    char why[192];
    snprintf(
        why, sizeof why,
        "rank %d (pid %d on %s) has shown no sign of life for %u ms: it is stopped, or cut off",
        notice->rank, notice->pid, link->table[notice->rank].host, notice->silent_ms);
    if (notice->rank == link->rank)
        weft__status_fail(link->status, WEFT_ERROR_RANK_FAILED, notice->rank, "%s", why);
    weft__status_lose_rank(link->status, notice->rank, "%s", why);
}

static enum weft__wire_result take_rank_state(struct weft__link *link,
                                              const struct weft__frame *frame)
{
    struct weft__rank_state_notice notice;
    if (frame->body_bytes != sizeof(notice))
        return WEFT__WIRE_GARBAGE;
    memcpy(&notice, frame->body, sizeof(notice));
    if (notice.rank < 0 || notice.rank >= link->num_ranks)
        return WEFT__WIRE_GARBAGE;
    char loss[192];
    weft__identity_tell_loss(&link->table[notice.rank], notice.rank, notice.ending, loss,
                             sizeof(loss));
    if (notice.state != WEFT__RANK_DEAD)
        weft__status_set_rank(link->status, notice.rank, (enum weft__rank_state)notice.state);
    else if (notice.silent_ms == 0)
        weft__status_lose_rank(link->status, notice.rank, "%s", loss);
    else
        lose_silent_rank(link, &notice);
    return WEFT__WIRE_OK;
}

static enum weft__wire_result take_failure(struct weft__link *link, const struct weft__frame *frame)
{
    struct weft__failure_notice notice;
    if (frame->body_bytes != sizeof(notice))
        return WEFT__WIRE_GARBAGE;
    memcpy(&notice, frame->body, sizeof(notice));
    notice.text[sizeof(notice.text) - 1] = '\0';
    weft__status_hear(link->status, (weft_result)notice.result, notice.rank, notice.text);
    return WEFT__WIRE_OK;
}

/* To an observer. */
static void send_report(struct weft__link *link, const struct weft__answer *answer)
{
    struct weft__report report = {.answer = *answer};
    weft__comm_report(link->comm, &report);
    weft__link_send(link,
                    weft__message_create(WEFT__FRAME_REPORT, &report, sizeof(report), NULL, 0));
}

/* The stream's thread may be waiting: this one answers for it. */
static enum weft__wire_result take_question(struct weft__link *link,
                                            const struct weft__frame *frame)
{
    struct weft__question question;
    if (frame->body_bytes != sizeof(question))
        return WEFT__WIRE_GARBAGE;
    memcpy(&question, frame->body, sizeof(question));
    const struct weft__answer answer = {
        .asker = question.asker,
        .asked = question.asked,
        .number = question.number,
        .waits = weft__standing_answer(link->standing, link->waits, &question.wait)};
    if (question.asker == WEFT__OBSERVER)
        send_report(link, &answer);
    else
        weft__link_send(link,
                        weft__message_create(WEFT__FRAME_ANSWER, &answer, sizeof(answer), NULL, 0));
    return WEFT__WIRE_OK;
}

static enum weft__wire_result take_answer(struct weft__link *link, const struct weft__frame *frame)
{
    struct weft__answer answer;
    if (frame->body_bytes != sizeof(answer))
        return WEFT__WIRE_GARBAGE;
    memcpy(&answer, frame->body, sizeof(answer));
    if (!weft__wait_list_is_valid(&answer.waits, link->num_ranks))
        return WEFT__WIRE_GARBAGE;
    weft__questions_answer(&link->questions, &answer);
    return WEFT__WIRE_OK;
}

static enum weft__wire_result take_frame(struct weft__link *link, const struct weft__frame *frame)
{
    switch (frame->type) {
    case WEFT__FRAME_GATHERED:
        return take_gathered(link, frame);
    case WEFT__FRAME_RANK_STATE:
        return take_rank_state(link, frame);
    case WEFT__FRAME_FAILED:
        return take_failure(link, frame);
    case WEFT__FRAME_QUESTION:
        return take_question(link, frame);
    case WEFT__FRAME_ANSWER:
        return take_answer(link, frame);
    case WEFT__FRAME_ALIVE: /* that bytes have come is all there is to it */
        return frame->body_bytes == 0 ? WEFT__WIRE_OK : WEFT__WIRE_GARBAGE;
    default:
        return WEFT__WIRE_GARBAGE;
    }
}

enum loss { SERVER_DIED, SERVER_SILENT };

/* The rank, in whose process the rendezvous is, is gone with it. */
static void lose_rank_of_server(struct weft__link *link, int32_t rank, enum loss loss)
{
    if (loss == SERVER_DIED)
        weft__status_lose_rank(link->status, rank,
                               "rank %d died (pid %d on %s), and with it the rendezvous", rank,
                               link->server.pid, link->server.host);
    else
        weft__status_lose_rank(link->status, rank,
                               "rank %d (pid %d on %s), and with it the rendezvous, has shown no "
                               "sign of life for %u ms: it is stopped, or cut off",
                               rank, link->server.pid, link->server.host, link->heartbeat.limit_ms);
}

/* The rendezvous is gone: with a rank, if it lived in the process of one. */
static void lose_server(struct weft__link *link, enum loss loss)
{
    int num_gone = 0;
    for (int32_t rank = 0; rank < link->num_ranks; rank++) {
        if (!weft__identity_is_same_process(&link->table[rank], &link->server))
            continue;
        if (!weft__status_rank_is_gone(link->status, rank))
            lose_rank_of_server(link, rank, loss);
        num_gone++;
        if (atomic_load(&link->status->result) != WEFT_OK)
            return;
    }
    char how[80] = "is gone";
    if (loss == SERVER_SILENT)
        snprintf(how, sizeof(how), "has shown no sign of life for %u ms: it is stopped, or cut off",
                 link->heartbeat.limit_ms);
    /* Which of the two hosts is cut off cannot be told from here: no rank is the culprit. */
    if (num_gone == 0)
        weft__status_fail(link->status, WEFT_ERROR_RANK_FAILED, -1,
                          "the rendezvous at %s, port %u (pid %d on %s) %s", link->point->address,
                          link->point->port, link->server.pid, link->server.host, how);
    pthread_mutex_lock(&link->status->mutex);
    link->server_state = WEFT__SERVER_GONE;
    pthread_cond_broadcast(&link->status->changed);
    pthread_mutex_unlock(&link->status->mutex);
    weft__questions_give_up(&link->questions);
}

/* A message cannot be read: from here on this rank hears no news. */
static void run_out_of_memory(struct weft__link *link)
{
    weft__status_fail(link->status, WEFT_ERROR_OUT_OF_MEMORY, link->rank,
                      "rank %d has no memory for what the rendezvous tells it", link->rank);
    weft__link_tell_failure(link);
}

/* ---------------------------------------------------------------- the thread */

enum { LOOK_MS = 250, LOOKS_PER_TIMEOUT = 8, LEAST_LOOK_MS = 10 };

/* Takes what has arrived and sends what waits. WEFT__WIRE_EMPTY: there is more to come. */
static enum weft__wire_result exchange(struct weft__link *link)
{
    struct weft__frame frame;
    enum weft__wire_result result;
    while ((result = weft__wire_receive(&link->wire, &frame)) == WEFT__WIRE_OK) {
        result = take_frame(link, &frame);
        if (result != WEFT__WIRE_OK)
            return result;
    }
    /* That the other side is gone shows at the end of the input, after its last news. */
    pthread_mutex_lock(&link->send_mutex);
    weft__wire_flush(&link->wire);
    pthread_mutex_unlock(&link->send_mutex);
    return result;
}

static void beat(struct weft__link *link)
{
    weft__link_send(link, weft__message_create(WEFT__FRAME_ALIVE, NULL, 0, NULL, 0));
}

/* Tells the rendezvous where this rank stands if its thread waits for long. */
static void look(struct weft__link *link, int64_t now_ns)
{
    struct weft__called *called = NULL;
    if (now_ns < link->look_ns)
        return;
    const uint32_t share_ms = link->timeout_ms / LOOKS_PER_TIMEOUT;
    const uint32_t look_ms = share_ms > LOOK_MS         ? LOOK_MS
                             : share_ms < LEAST_LOOK_MS ? LEAST_LOOK_MS
                                                        : share_ms;
    link->look_ns = now_ns + look_ms * WEFT__NS_PER_MS;
    const int32_t num_called = weft__standing_look(link->standing, &called);
    if (num_called > 0)
        weft__link_send(link, weft__message_create(WEFT__FRAME_STANDING, called,
                                                   (size_t)num_called * sizeof *called, NULL, 0));
    free(called);
}

static int64_t first_of(int64_t one_ns, int64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* Until there is something to read or to send, or the clock demands something. */
static void sleep_until_news(struct weft__link *link, int64_t close_ns, int *server_has_ended)
{
    const int64_t beat_ns = first_of(weft__heartbeat_deadline_ns(&link->heartbeat), link->look_ns);
    pthread_mutex_lock(&link->send_mutex);
    short events = weft__wire_has_output(&link->wire) ? POLLIN | POLLOUT : POLLIN;
    pthread_mutex_unlock(&link->send_mutex);
    struct pollfd set[] = {{.fd = link->wire.fd, .events = events},
                           {.fd = link->wake_fd, .events = POLLIN},
                           {.fd = link->process_fd, .events = POLLIN}};
    uint64_t num_wakes;
    if (poll(set, 3, weft__poll_timeout_ms(first_of(close_ns, beat_ns))) <= 0)
        return;
    if (set[1].revents != 0)
        (void)!read(link->wake_fd, &num_wakes, sizeof(num_wakes));
    if (set[2].revents != 0)
        *server_has_ended = 1;
}

static void monitor(struct weft__link *link)
{
    int server_has_ended = 0;
    for (;;) {
        const int64_t now_ns = weft__now_ns(); /* before it reads: it may be stopped in between */
        enum weft__wire_result result = exchange(link);
        if (result == WEFT__WIRE_EMPTY && server_has_ended)
            result = WEFT__WIRE_CLOSED;
        pthread_mutex_lock(&link->send_mutex);
        int64_t close_ns = link->close_ns;
        pthread_mutex_unlock(&link->send_mutex);
        const int is_silent =
            weft__heartbeat_is_silent(&link->heartbeat, link->wire.num_received, now_ns);
        const int is_lost = result != WEFT__WIRE_EMPTY || is_silent;
        if (result == WEFT__WIRE_NO_MEMORY)
            run_out_of_memory(link);
        else if (is_lost && close_ns == INT64_MAX)
            lose_server(link, result != WEFT__WIRE_EMPTY ? SERVER_DIED : SERVER_SILENT);
        if (is_silent && close_ns == INT64_MAX && atomic_load(&link->status->result) != WEFT_OK)
            weft__link_tell_failure(link); /* should it wake up: it goes on without this rank */
        if (is_lost || now_ns >= close_ns)
            return;
        if (weft__heartbeat_is_due(&link->heartbeat, now_ns))
            beat(link);
        look(link, now_ns);
        sleep_until_news(link, close_ns, &server_has_ended);
    }
}

void *weft__link_monitor(void *link)
{
    monitor(link);
    return NULL;
}
