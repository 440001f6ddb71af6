/* SPDX-License-Identifier: MIT */
#include "comm/link.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/connect.h"
#include "comm/error.h"
#include "comm/heartbeat.h"
#include "comm/identity.h"
#include "comm/questions.h"
#include "comm/thread.h"

enum {
    GOODBYE_MS = 1000, /* for the rendezvous to pass a goodbye on */
    GRACE_MS = 2000    /* the rendezvous knows more about a timeout: it goes first */
};

struct weft__link {
    int32_t rank, num_ranks;
    uint32_t timeout_ms;
    struct weft__status *status;
    struct weft__waits *waits;
    const struct weft__meeting_point *point;
    struct weft__identity server;
    struct weft__identity *table; /* [num_ranks] */
    pthread_t monitor;
    int wake_fd;    /* makes the monitor look again */
    int process_fd; /* readable when the process of the rendezvous has ended; -1: not watched */
    pthread_mutex_t send_mutex; /* of the wire's sending side and what follows */
    struct weft__wire wire;
    int64_t close_ns; /* when the monitor gives up waiting for the goodbye's effect */
    struct weft__heartbeat heartbeat; /* the monitor's */

    /* The all-gather that a caller waits for; with the status's mutex and condition. */
    struct {
        uint64_t sequence;
        size_t blob_bytes;
        void *recv; /* NULL: nobody waits */
        enum { GATHER_PENDING, GATHER_DONE } state;
        weft_result result;
        int32_t failed_rank; /* whose own result it is, or WEFT__NOBODY */
        char text[WEFT__MAX_TEXT_BYTES];
    } gather;
    /* Sent where there is no memory for others, so that nobody waits for what this rank cannot
     * say. */
    struct weft__message *spare_gather, *spare_notice, *goodbye;
    struct weft__questions questions;
    enum { SERVER_THERE, SERVER_GONE } server_state; /* gone after its rank's goodbye: no failure */
};

static void wake_monitor(struct weft__link *link)
{
    const uint64_t one = 1;
    /* It can only fail when the counter is full: then the monitor is awake. */
    (void)!write(link->wake_fd, &one, sizeof(one));
}

/* Takes over the message; NULL, for lack of memory, sends nothing. */
static void put_on_wire(struct weft__link *link, struct weft__message *message)
{
    if (message == NULL)
        return;
    pthread_mutex_lock(&link->send_mutex);
    /* A broken connection is the monitor's to notice. */
    weft__wire_send(&link->wire, message);
    weft__message_release(message);
    pthread_mutex_unlock(&link->send_mutex);
}

static void send_message(struct weft__link *link, struct weft__message *message)
{
    put_on_wire(link, message);
    wake_monitor(link);
}

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
    if (link->gather.state == GATHER_PENDING && header.sequence == link->gather.sequence) {
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
        link->gather.state = verdict == WEFT__WIRE_OK ? GATHER_DONE : GATHER_PENDING;
        pthread_cond_broadcast(&link->status->changed);
    }
    pthread_mutex_unlock(&link->status->mutex);
    return verdict;
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
    weft__status_set_rank(link->status, notice.rank, (enum weft__rank_state)notice.state);
    if (notice.state == WEFT__RANK_DEAD)
        weft__status_fail(link->status, WEFT_ERROR_RANK_FAILED, notice.rank,
                          "rank %d died (pid %d)", notice.rank, notice.pid);
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

/* The stream's thread may be waiting: this one answers for it. */
static enum weft__wire_result take_question(struct weft__link *link,
                                            const struct weft__frame *frame)
{
    struct weft__question question;
    if (frame->body_bytes != sizeof(question))
        return WEFT__WIRE_GARBAGE;
    memcpy(&question, frame->body, sizeof(question));
    const struct weft__answer answer = {.asker = question.asker,
                                        .asked = question.asked,
                                        .number = question.number,
                                        .waits = weft__waits_find(link->waits, question.exchange)};
    send_message(link, weft__message_create(WEFT__FRAME_ANSWER, &answer, sizeof(answer), NULL, 0));
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
    weft__status_set_rank(link->status, rank, WEFT__RANK_DEAD);
    if (loss == SERVER_DIED)
        weft__status_fail(link->status, WEFT_ERROR_RANK_FAILED, rank,
                          "rank %d died (pid %d), and with it the rendezvous", rank,
                          link->server.pid);
    else
        weft__status_fail(link->status, WEFT_ERROR_RANK_FAILED, rank,
                          "rank %d (pid %d), and with it the rendezvous, has shown no sign of life "
                          "for %u ms: it is stopped, or cut off",
                          rank, link->server.pid, link->heartbeat.limit_ms);
}

/* The rendezvous is gone: with a rank, if it lived in the process of one. */
static void lose_server(struct weft__link *link, enum loss loss)
{
    int num_left = 0;
    for (int32_t rank = 0; rank < link->num_ranks; rank++) {
        if (!weft__identity_is_same_process(&link->table[rank], &link->server))
            continue;
        if (atomic_load(&link->status->rank_states[rank]) == WEFT__RANK_ALIVE) {
            lose_rank_of_server(link, rank, loss);
            return;
        }
        num_left++;
    }
    char how[80] = "is gone", place[32];
    weft__identity_find_host(&link->server, link->table, link->num_ranks, place, sizeof(place));
    if (loss == SERVER_SILENT)
        snprintf(how, sizeof(how), "has shown no sign of life for %u ms: it is stopped, or cut off",
                 link->heartbeat.limit_ms);
    /* Which of the two hosts is cut off cannot be told from here: no rank is the culprit. */
    if (num_left == 0)
        weft__status_fail(link->status, WEFT_ERROR_RANK_FAILED, -1,
                          "the rendezvous at %s, port %u (pid %d%s) %s", link->point->address,
                          link->point->port, link->server.pid, place, how);
    pthread_mutex_lock(&link->status->mutex);
    link->server_state = SERVER_GONE;
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

/* ---------------------------------------------------------------- the monitor */

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
    put_on_wire(link, weft__message_create(WEFT__FRAME_ALIVE, NULL, 0, NULL, 0));
}

/* Until there is something to read or to send, or the clock demands something. */
static void sleep_until_news(struct weft__link *link, int64_t close_ns, int *server_has_ended)
{
    const int64_t beat_ns = weft__heartbeat_deadline_ns(&link->heartbeat);
    pthread_mutex_lock(&link->send_mutex);
    short events = weft__wire_has_output(&link->wire) ? POLLIN | POLLOUT : POLLIN;
    pthread_mutex_unlock(&link->send_mutex);
    struct pollfd set[] = {{.fd = link->wire.fd, .events = events},
                           {.fd = link->wake_fd, .events = POLLIN},
                           {.fd = link->process_fd, .events = POLLIN}};
    uint64_t num_wakes;
    if (poll(set, 3, weft__poll_timeout_ms(close_ns < beat_ns ? close_ns : beat_ns)) <= 0)
        return;
    if (set[1].revents != 0)
        (void)!read(link->wake_fd, &num_wakes, sizeof(num_wakes));
    if (set[2].revents != 0)
        *server_has_ended = 1;
}

static void *monitor(void *argument)
{
    struct weft__link *link = argument;
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
            return NULL;
        if (weft__heartbeat_is_due(&link->heartbeat, now_ns))
            beat(link);
        sleep_until_news(link, close_ns, &server_has_ended);
    }
}

/* ---------------------------------------------------------------- all-gather */

static void begin_gather(struct weft__link *link, const struct weft__share *share)
{
    pthread_mutex_lock(&link->status->mutex);
    link->gather.sequence++;
    link->gather.blob_bytes = share->bytes;
    link->gather.recv = share->recv;
    link->gather.state = GATHER_PENDING;
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
        if (link->gather.state == GATHER_DONE)
            outcome = OUTCOME_DONE;
        else if (atomic_load(&status->result) != WEFT_OK)
            outcome = OUTCOME_FAILED;
        else if (link->server_state == SERVER_GONE)
            outcome = OUTCOME_SERVER_GONE;
        else
            pthread_cond_timedwait(&status->changed, &status->mutex, &deadline);
    } while (outcome == OUTCOME_EXPIRED && weft__now_ns() < deadline_ns);
    link->gather.state = GATHER_DONE; /* from here on recv is not written */
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

/* What this rank brings: its blob, or why it has none. */
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
    begin_gather(link, share);
    send_message(link, contribution(link, share));
    enum gather_outcome outcome = wait_for_gather(link);
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
    send_message(link, message);
}

void weft__link_tell_absence(struct weft__link *link, const struct weft__absence *absence)
{
    send_message(link,
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
    send_message(link,
                 weft__message_create(WEFT__FRAME_QUESTION, &numbered, sizeof(numbered), NULL, 0));
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
    const struct weft__wait_list last = weft__waits_find(link->waits, 0);
    struct weft__message *goodbye = link->goodbye;
    link->goodbye = NULL;
    memcpy(goodbye->body, &last, sizeof(last));
    pthread_mutex_lock(&link->send_mutex);
    link->close_ns =
        weft__now_ns() + GOODBYE_MS * WEFT__NS_PER_MS; /* from here on its end is expected */
    pthread_mutex_unlock(&link->send_mutex);
    wake_monitor(link);
    send_message(link, goodbye);
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
               : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a connection");
}

static weft_result start(struct weft__link *link, const struct weft__link_options *options,
                         struct weft__identity *table)
{
    struct weft__hello *hello = options->hello;
    size_t table_bytes = (size_t)hello->num_ranks * sizeof(*table);
    hello->magic = WEFT__HELLO_MAGIC;
    hello->version = WEFT__HELLO_VERSION;
    memcpy(hello->nonce, options->point->nonce, sizeof(hello->nonce));
    link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (link->wake_fd < 0)
        return weft__system_error("eventfd");
    link->table = malloc(table_bytes);
    if (link->table == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", hello->num_ranks);
    WEFT__TRY(make_spares(link));
    const struct weft__connection_request request = {
        .point = options->point, .hello = hello, .watched = options->watched};
    weft_result result = weft__connect(&request, &link->wire, &link->server, link->table);
    if (result != WEFT_OK)
        return result;
    memcpy(table, link->table, table_bytes);
    link->process_fd = weft__identity_watch(&hello->identity, &link->server);
    weft__heartbeat_start(&link->heartbeat, hello->heartbeat_ms, weft__now_ns());
    return weft__thread_start(&link->monitor, monitor, link);
}

weft_result weft__link_open(const struct weft__link_options *options, struct weft__identity *table,
                            struct weft__link **opened)
{
    struct weft__link *link = calloc(1, sizeof(*link));
    if (link == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a connection");
    link->rank = options->hello->rank;
    link->num_ranks = options->hello->num_ranks;
    link->timeout_ms = options->hello->timeout_ms;
    link->point = options->point;
    link->status = options->status;
    link->questions.status = options->status;
    link->waits = options->waits;
    link->wire.fd = -1;
    link->process_fd = -1;
    link->close_ns = INT64_MAX;
    link->gather.state = GATHER_DONE;
    pthread_mutex_init(&link->send_mutex, NULL);
    weft_result result = start(link, options, table);
    if (result == WEFT_OK)
        *opened = link;
    else
        free_link(link);
    return result;
}
