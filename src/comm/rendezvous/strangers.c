/* SPDX-License-Identifier: MIT */
/* Connections to the rendezvous that belong to no rank and no observer yet. */
#include <string.h>

#include "comm/host/log.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/observers.h"
#include "comm/rendezvous/rendezvous_internal.h"

enum { WARNING_MS = 1000 /* between two warnings: ranks try again and again */ };

void weft__stranger_drop(struct weft__client *client, const char *reason)
{
    char name[WEFT__PEER_NAME_BYTES];
    weft__listener_name_peer(client->wire.fd, name);
    weft__log(WEFT__LOG_INFO, WEFT__LOG_NO_RANK,
              "dropped a connection to the rendezvous from %s: %s", name, reason);
    client->state = WEFT__CLIENT_BROKEN;
}

static int is_known(const struct weft__rendezvous *server, const struct weft__hello *hello)
{
    for (int i = 0; i < server->num_refused; i++) {
        const struct weft__refused *refused = &server->refused[i];
        if (refused->host_key == hello->identity.host_key && refused->pid == hello->identity.pid &&
            refused->rank == hello->rank)
            return 1;
    }
    return 0;
}

/* A rank tries again until its deadline: one warning is enough. */
static enum weft__log_level warning_level(struct weft__rendezvous *server,
                                          const struct weft__hello *hello)
{
    const int64_t now_ns = weft__now_ns();
    if (is_known(server, hello) || (server->num_refused == WEFT__MAX_REFUSED &&
                                    now_ns < server->warned_ns + WARNING_MS * WEFT__NS_PER_MS))
        return WEFT__LOG_INFO;
    if (server->num_refused < WEFT__MAX_REFUSED)
        server->refused[server->num_refused++] =
            (struct weft__refused){hello->identity.host_key, hello->identity.pid, hello->rank};
    server->warned_ns = now_ns;
    return WEFT__LOG_WARN;
}

/* It has another secret: that of another job, or none. It is told so, and so are the ranks that
 * wait for it. */
static void refuse(struct weft__rendezvous *server, struct weft__client *client,
                   const struct weft__hello *hello)
{
    char name[WEFT__PEER_NAME_BYTES];
    const struct weft__failure_notice notice =
        weft__group_failure(WEFT_ERROR_MISMATCH, hello->rank, "%s",
                            "the rendezvous there has another unique id or WEFT_SECRET");
    weft__listener_name_peer(client->wire.fd, name);
    weft__log(warning_level(server, hello), WEFT__LOG_NO_RANK,
              "refused rank %d (pid %d) from %s: its unique id or WEFT_SECRET is not that of this "
              "rendezvous",
              hello->rank, hello->identity.pid, name);
    weft__groups_note_refused(server->groups, hello, name);
    weft__group_send(client, WEFT__FRAME_FAILED, &notice, sizeof(notice));
    client->state = WEFT__CLIENT_BROKEN;
}

struct weft__meeting *weft__rendezvous_find_meeting(struct weft__rendezvous *server,
                                                    const uint8_t *nonce)
{
    struct weft__meeting *meeting = atomic_load(&server->meetings);
    while (meeting != NULL && memcmp(meeting->nonce, nonce, sizeof(meeting->nonce)) != 0)
        meeting = meeting->next;
    return meeting;
}

/* It asks once; the time of strangers ends its connection. */
static void let_observe(struct weft__rendezvous *server, struct weft__client *client,
                        const struct weft__frame *frame)
{
    struct weft__observation observation;
    const struct weft__failure_notice notice =
        weft__group_failure(WEFT_ERROR_MISMATCH, WEFT__NOBODY, "%s",
                            "the rendezvous there has another unique id or WEFT_SECRET");
    if (client->observation != 0 || frame->body_bytes != sizeof(observation)) {
        weft__stranger_drop(client, "it does not speak the protocol");
        return;
    }
    memcpy(&observation, frame->body, sizeof(observation));
    if (observation.magic != WEFT__HELLO_MAGIC || observation.version != WEFT__HELLO_VERSION) {
        weft__stranger_drop(client, "its version of the protocol differs");
        return;
    }
    client->meeting = weft__rendezvous_find_meeting(server, observation.nonce);
    if (client->meeting != NULL) {
        client->observation = ++server->num_observations;
        weft__observer_begin(client, server->groups);
        return;
    }
    weft__group_send(client, WEFT__FRAME_FAILED, &notice, sizeof(notice));
    weft__stranger_drop(client, "it does not know the secret");
}

void weft__stranger_introduce(struct weft__rendezvous *server, struct weft__client *client,
                              const struct weft__frame *frame)
{
    struct weft__hello hello;
    if (frame->type == WEFT__FRAME_OBSERVE) {
        let_observe(server, client, frame);
        return;
    }
    if (frame->type != WEFT__FRAME_HELLO || frame->body_bytes != sizeof(hello) ||
        client->observation != 0) {
        weft__stranger_drop(client, "it does not speak the protocol");
        return;
    }
    memcpy(&hello, frame->body, sizeof(hello));
    hello.identity.host[WEFT__HOST_NAME_BYTES - 1] = '\0';
    if (hello.magic != WEFT__HELLO_MAGIC || hello.version != WEFT__HELLO_VERSION ||
        hello.num_ranks < 1 || hello.num_ranks > WEFT__MAX_RANKS || hello.rank < 0 ||
        hello.rank >= hello.num_ranks) {
        weft__stranger_drop(client, "its version of the protocol differs");
        return;
    }
    client->meeting = weft__rendezvous_find_meeting(server, hello.nonce);
    if (client->meeting == NULL) {
        refuse(server, client, &hello);
        return;
    }
    weft__group_join(&server->groups, client, &hello, &server->identity);
    if (client->group == NULL)
        return;
    atomic_fetch_add(&client->meeting->num_ranks, 1);
    server->num_strangers--;
    client->deadline_ns = INT64_MAX;
    client->process_fd = weft__identity_watch(&server->identity, &hello.identity);
}
