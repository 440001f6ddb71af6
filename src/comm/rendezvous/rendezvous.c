/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/log.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/beacon.h"
#include "comm/rendezvous/observers.h"
#include "comm/rendezvous/rendezvous_internal.h"

enum {
    STRANGER_TIMEOUT_MS = 5000, /* to introduce itself */
    MAX_STRANGERS = 512,        /* at a time; for one more, the longest waiting one goes */
    MAX_ACCEPTED = 64,          /* per round */
    PAUSE_MS = 10,              /* when there are no descriptors for new connections */
    FIRST_CLIENT = 3            /* in the poll set, after stop event, listener and beacon */
};

/* Servers outlive the communicators that they serve, so the process keeps a list of them. */
static struct {
    pthread_mutex_t mutex;
    struct weft__rendezvous *first;
    pid_t pid; /* whose threads they are: a forked child has the list, but not the threads */
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---------------------------------------------------------------- clients */

static void serve_input(struct weft__rendezvous *server, struct weft__client *client)
{
    struct weft__frame frame;
    enum weft__wire_result result = WEFT__WIRE_OK;
    while (client->state == WEFT__CLIENT_OPEN) {
        result = weft__wire_receive(&client->wire, &frame);
        if (result != WEFT__WIRE_OK)
            break;
        if (client->group == NULL) {
            weft__stranger_introduce(server, client, &frame);
        } else if (frame.type == WEFT__FRAME_REPORT) {
            result = weft__observers_tell(server->clients, client, &frame);
        } else if (weft__group_receive(&server->groups, client, &frame) != WEFT__WIRE_OK) {
            result = WEFT__WIRE_GARBAGE;
        }
        if (result != WEFT__WIRE_OK)
            break;
    }
    if (result == WEFT__WIRE_GARBAGE && client->group == NULL)
        weft__stranger_drop(client, "it does not speak the protocol");
    else if (result != WEFT__WIRE_OK && result != WEFT__WIRE_EMPTY)
        client->state = WEFT__CLIENT_BROKEN;
}

/* A client has one slot of the poll set, and the next one too if its process is watched. */
enum { SOCKET_SLOT, PROCESS_SLOT };

static int num_slots(const struct weft__client *client)
{
    return client->process_fd >= 0 ? 2 : 1;
}

static void serve_client(struct weft__rendezvous *server, struct weft__client *client,
                         const struct pollfd *slots)
{
    short events = slots[SOCKET_SLOT].revents;
    int has_ended = client->process_fd >= 0 && slots[PROCESS_SLOT].revents != 0;
    if ((events & POLLOUT) && weft__wire_flush(&client->wire) != WEFT__WIRE_OK)
        client->state = WEFT__CLIENT_BROKEN;
    /* Messages of a process count, also when it has ended since. */
    if ((events & (POLLIN | POLLHUP | POLLERR)) || has_ended)
        serve_input(server, client);
    if (has_ended)
        client->state = WEFT__CLIENT_BROKEN;
}

static struct weft__client *oldest_stranger(const struct weft__rendezvous *server)
{
    struct weft__client *oldest = NULL;
    for (struct weft__client *client = server->clients; client != NULL; client = client->next)
        if (client->group == NULL && client->state == WEFT__CLIENT_OPEN &&
            (oldest == NULL || client->deadline_ns < oldest->deadline_ns))
            oldest = client;
    return oldest;
}

static void close_client(struct weft__client *client)
{
    if (client->process_fd >= 0)
        close(client->process_fd);
    weft__wire_close(&client->wire); /* last: to the other side it says that all is done */
    free(client);
}

/* Removing one may break others, which are told of it; so until none is broken. */
static void sweep(struct weft__rendezvous *server)
{
    struct weft__client **link = &server->clients;
    while (*link != NULL) {
        struct weft__client *client = *link;
        if (client->state == WEFT__CLIENT_OPEN) {
            link = &client->next;
            continue;
        }
        *link = client->next;
        if (client->group != NULL)
            weft__group_lose(client);
        if (client->deadline_ns != INT64_MAX) /* a stranger: no member, and no goodbye said */
            server->num_strangers--;
        else
            atomic_fetch_sub(&client->meeting->num_ranks, 1);
        close_client(client);
        link = &server->clients;
    }
}

/* Ranks that do not come in would else look as if they had not come. */
static void warn_of_files(struct weft__rendezvous *server, int error)
{
    if (!server->is_warned_of_files)
        weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK,
                  "ranks cannot connect to the rendezvous in process %d: %s (ulimit -n; each takes "
                  "two file descriptors there)",
                  (int)getpid(), strerror(error));
    server->is_warned_of_files = 1;
}

/* The longest waiting stranger goes. */
static void make_room(struct weft__rendezvous *server)
{
    struct weft__client *oldest = oldest_stranger(server);
    if (oldest != NULL)
        weft__stranger_drop(oldest, "too many strangers");
    sweep(server);
}

static int is_somebody_waiting(const struct weft__rendezvous *server)
{
    struct pollfd listener = {.fd = server->listener_fd, .events = POLLIN};
    return poll(&listener, 1, 0) > 0;
}

/* accept() says that there are no descriptors also when nobody waits: then whoever has the last
 * one keeps it. Without a stranger who could go, a pause keeps the loop from spinning on the
 * listener. */
static void make_files(struct weft__rendezvous *server, int error)
{
    if (!is_somebody_waiting(server))
        return;
    if (oldest_stranger(server) == NULL) {
        warn_of_files(server, error);
        poll(NULL, 0, PAUSE_MS);
    }
    make_room(server);
}

static void add_client(struct weft__rendezvous *server, int fd)
{
    const struct weft__greeting greeting = {.magic = WEFT__HELLO_MAGIC,
                                            .version = WEFT__HELLO_VERSION};
    struct weft__client *client = calloc(1, sizeof(*client));
    if (client == NULL || weft__socket_prepare(fd) != WEFT_OK) {
        free(client);
        close(fd);
        return;
    }
    weft__wire_init(&client->wire, fd, sizeof(struct weft__hello));
    client->process_fd = -1;
    client->deadline_ns = weft__now_ns() + STRANGER_TIMEOUT_MS * WEFT__NS_PER_MS;
    client->next = server->clients;
    server->clients = client;
    server->num_strangers++;
    weft__group_send(client, WEFT__FRAME_GREETING, &greeting, sizeof(greeting));
    serve_input(server, client);
}

/* Not all that wait: the members have a turn in between. */
static void accept_clients(struct weft__rendezvous *server)
{
    for (int num_accepted = 0; num_accepted < MAX_ACCEPTED; num_accepted++) {
        if (server->num_strangers >= MAX_STRANGERS)
            make_room(server);
        int fd = weft__descriptor_keep(
            accept4(server->listener_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd >= 0) {
            add_client(server, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE)
            make_files(server, errno);
        return;
    }
}

static void drop_silent_strangers(struct weft__rendezvous *server)
{
    struct weft__client *oldest;
    while ((oldest = oldest_stranger(server)) != NULL && weft__now_ns() >= oldest->deadline_ns)
        weft__stranger_drop(oldest, "it said nothing");
}

/* ---------------------------------------------------------------- the thread */

static int64_t next_deadline_ns(const struct weft__rendezvous *server)
{
    int64_t deadline_ns = weft__groups_deadline_ns(server->groups);
    const struct weft__client *oldest = oldest_stranger(server);
    return oldest != NULL && oldest->deadline_ns < deadline_ns ? oldest->deadline_ns : deadline_ns;
}

/* Only descriptors that are open, since poll() takes no more than a process may have. */
static int poll_set_size(const struct weft__rendezvous *server)
{
    int size = FIRST_CLIENT;
    for (const struct weft__client *client = server->clients; client != NULL; client = client->next)
        size += num_slots(client);
    return size;
}

static void fill_poll_set(const struct weft__rendezvous *server, struct pollfd *set)
{
    set[0] = (struct pollfd){.fd = server->stop_fd, .events = POLLIN};
    set[1] = (struct pollfd){.fd = server->listener_fd, .events = POLLIN};
    set[2] = (struct pollfd){.fd = server->beacon_fd, .events = POLLIN};
    struct pollfd *slots = set + FIRST_CLIENT;
    for (const struct weft__client *client = server->clients; client != NULL;
         slots += num_slots(client), client = client->next) {
        short events = weft__wire_has_output(&client->wire) ? POLLIN | POLLOUT : POLLIN;
        slots[SOCKET_SLOT] = (struct pollfd){.fd = client->wire.fd, .events = events};
        if (client->process_fd >= 0)
            slots[PROCESS_SLOT] = (struct pollfd){.fd = client->process_fd, .events = POLLIN};
    }
}

/* Serves what poll() has found. A client that introduces itself gets its second slot in the next
 * round. */
static void serve_clients(struct weft__rendezvous *server, const struct pollfd *slots)
{
    for (struct weft__client *client = server->clients; client != NULL; client = client->next) {
        const struct pollfd *mine = slots;
        slots += num_slots(client);
        if (client->state == WEFT__CLIENT_OPEN)
            serve_client(server, client, mine);
    }
}

/* One round; 0 when the server is to end. */
static int serve_round(struct weft__rendezvous *server, struct pollfd *set)
{
    const int64_t read_ns = weft__now_ns();
    fill_poll_set(server, set);
    int num_ready =
        poll(set, (nfds_t)poll_set_size(server), weft__poll_timeout_ms(next_deadline_ns(server)));
    if (num_ready > 0 && set[0].revents != 0)
        return 0;
    if (num_ready > 0)
        serve_clients(server, set + FIRST_CLIENT);
    sweep(server);
    if (num_ready > 0 && set[1].revents != 0)
        accept_clients(server);
    if (num_ready > 0 && set[2].revents != 0)
        weft__beacon_answer(server->beacon_fd, &server->point, atomic_load(&server->meetings));
    drop_silent_strangers(server);
    weft__groups_tick(&server->groups, read_ns);
    sweep(server);
    return 1;
}

/* Grows the poll set to what the next round needs; 0 if there is no memory for it. */
static int reserve_poll_set(const struct weft__rendezvous *server, struct pollfd **set,
                            int *capacity)
{
    int num_needed = poll_set_size(server);
    if (*set != NULL && num_needed <= *capacity)
        return 1;
    struct pollfd *larger = realloc(*set, 2 * (size_t)num_needed * sizeof(*larger));
    if (larger == NULL)
        return 0;
    *set = larger;
    *capacity = 2 * num_needed;
    return 1;
}

static void *serve(void *argument)
{
    struct weft__rendezvous *server = argument;
    struct pollfd *set = NULL;
    int capacity = 0;
    while (reserve_poll_set(server, &set, &capacity) && serve_round(server, set))
        continue;
    free(set);
    /* First the beacon: an observer whose connection ends must not find the job listed still. */
    if (server->beacon_fd >= 0)
        close(server->beacon_fd);
    server->beacon_fd = -1;
    /* Members that are still there see their connections end. */
    weft__groups_free(&server->groups);
    while (server->clients != NULL) {
        struct weft__client *client = server->clients;
        server->clients = client->next;
        close_client(client);
    }
    return NULL;
}

static void close_server(struct weft__rendezvous *server)
{
    if (server->listener_fd >= 0)
        close(server->listener_fd);
    if (server->stop_fd >= 0)
        close(server->stop_fd);
    if (server->beacon_fd >= 0)
        close(server->beacon_fd);
    struct weft__meeting *meeting = atomic_load(&server->meetings);
    while (meeting != NULL) {
        struct weft__meeting *next = meeting->next;
        free(meeting);
        meeting = next;
    }
    free(server);
}

/* The server's thread reads the list meanwhile. registry.mutex orders additions. */
static weft_result add_meeting(struct weft__rendezvous *server,
                               const struct weft__meeting_point *point)
{
    struct weft__meeting *meeting = calloc(1, sizeof(*meeting));
    WEFT__CHECK_MEMORY(meeting, "no memory for a rendezvous");
    memcpy(meeting->nonce, point->nonce, sizeof(meeting->nonce));
    meeting->next = atomic_load(&server->meetings);
    atomic_store(&server->meetings, meeting);
    return WEFT_OK;
}

static weft_result start_server(struct weft__meeting_point *point, enum weft__listen_on listen_on,
                                int64_t patience_ms, struct weft__rendezvous **started)
{
    struct weft__rendezvous *server = calloc(1, sizeof(*server));
    WEFT__CHECK_MEMORY(server, "no memory for a rendezvous");
    server->listener_fd = -1;
    server->beacon_fd = -1;
    server->stop_fd = weft__descriptor_keep(eventfd(0, EFD_CLOEXEC));
    weft_result result = server->stop_fd < 0 ? weft__system_error("eventfd") : WEFT_OK;
    if (result == WEFT_OK)
        result = weft__identity_of_process(&server->identity);
    if (result == WEFT_OK) /* it takes no descriptors, and tells its jobs from those of others */
        result = weft__random_bytes(server->identity.socket_id, sizeof(server->identity.socket_id));
    if (result == WEFT_OK)
        result = weft__listener_open(point, listen_on, patience_ms, &server->listener_fd);
    server->point = *point;
    server->listen_on = listen_on;
    if (result == WEFT_OK)
        server->beacon_fd = weft__beacon_open(point->port);
    if (result == WEFT_OK)
        result = add_meeting(server, point);
    if (result == WEFT_OK)
        result = weft__thread_start(&server->thread, serve, server);
    if (result != WEFT_OK) {
        close_server(server);
        return result;
    }
    weft__log(WEFT__LOG_INFO, WEFT__LOG_NO_RANK,
              "the rendezvous is at %s, port %u: weft status --pid %d looks into its job",
              point->address, point->port, (int)getpid());
    *started = server;
    return WEFT_OK;
}

/* The server of this process that already serves the point, or NULL. */
static struct weft__rendezvous *find_server(const struct weft__meeting_point *point)
{
    for (struct weft__rendezvous *server = registry.first; server != NULL; server = server->next)
        if ((server->point.port == point->port || point->port_choice == WEFT__PORT_DRAWN) &&
            weft__rendezvous_find_meeting(server, point->nonce) != NULL)
            return server;
    return NULL;
}

/* The server of this process that listens where the point is to be served, or NULL. */
static struct weft__rendezvous *find_listener(const struct weft__meeting_point *point,
                                              enum weft__listen_on listen_on)
{
    for (struct weft__rendezvous *server = registry.first; server != NULL; server = server->next)
        if ((server->point.port == point->port || point->port == 0) &&
            server->listen_on == listen_on && strcmp(server->point.address, point->address) == 0)
            return server;
    return NULL;
}

static weft_result serve_point(struct weft__meeting_point *point, enum weft__listen_on listen_on,
                               int64_t patience_ms)
{
    struct weft__rendezvous *server = find_server(point);
    if (server == NULL && (server = find_listener(point, listen_on)) != NULL) {
        WEFT__TRY(add_meeting(server, point));
    } else if (server == NULL) {
        WEFT__TRY(start_server(point, listen_on, patience_ms, &server));
        server->next = registry.first;
        registry.first = server;
    }
    point->port = server->point.port;
    point->port_choice = WEFT__PORT_FIXED;
    return WEFT_OK;
}

weft_result weft__rendezvous_serve(struct weft__meeting_point *point,
                                   enum weft__listen_on listen_on, int64_t patience_ms)
{
    pthread_mutex_lock(&registry.mutex);
    if (registry.pid != getpid())
        registry.first = NULL;
    registry.pid = getpid();
    const weft_result result = serve_point(point, listen_on, patience_ms);
    pthread_mutex_unlock(&registry.mutex);
    return result;
}

int32_t weft__rendezvous_num_ranks(const struct weft__meeting_point *point)
{
    pthread_mutex_lock(&registry.mutex);
    struct weft__rendezvous *server = registry.pid == getpid() ? find_server(point) : NULL;
    const int32_t num_ranks =
        server != NULL
            ? atomic_load(&weft__rendezvous_find_meeting(server, point->nonce)->num_ranks)
            : -1;
    pthread_mutex_unlock(&registry.mutex);
    return num_ranks;
}

/* Without this an unloaded library would leave threads without code. Runs after the destructor of
 * link_exit.c. */
__attribute__((destructor(200))) static void stop_all_servers(void)
{
    if (registry.pid != getpid())
        return;
    while (registry.first != NULL) {
        struct weft__rendezvous *server = registry.first;
        const uint64_t stop = 1;
        registry.first = server->next;
        if (write(server->stop_fd, &stop, sizeof(stop)) == sizeof(stop))
            pthread_join(server->thread, NULL);
        close_server(server);
    }
}
