/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/beacon.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/thread.h"

enum { BACKLOG = 16, MAX_BEACONS = 256 };

struct beacon {
    int32_t pid;
    uint16_t port;
};

static socklen_t name_beacon(struct beacon beacon, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                                "weft-job.%" PRId32 ".%" PRIu16, beacon.pid, beacon.port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int make_socket(void)
{
    return weft__descriptor_keep(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* ---------------------------------------------------------------- the rendezvous' side */

int weft__beacon_open(uint16_t port)
{
    struct sockaddr_un address;
    const socklen_t bytes = name_beacon((struct beacon){getpid(), port}, &address);
    const int fd = make_socket();
    if (fd < 0 ||
        (bind(fd, (const struct sockaddr *)&address, bytes) == 0 && listen(fd, BACKLOG) == 0))
        return fd;
    close(fd);
    return -1;
}

static int is_same_user(int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t bytes = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

/* A socket's buffer takes all ids at once: nobody can make the rendezvous wait. */
void weft__beacon_answer(int beacon_fd, const struct weft__meeting_point *point,
                         const struct weft__meeting *meetings)
{
    weft_unique_id ids[WEFT__MAX_BEACON_IDS];
    size_t num_ids = 0;
    const int fd = accept4(beacon_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { /* perhaps for lack of descriptors: the connection waits, and poll tells again */
        enum { PAUSE_MS = 10 };
        poll(NULL, 0, PAUSE_MS);
        return;
    }
    for (const struct weft__meeting *meeting = meetings; meeting != NULL; meeting = meeting->next) {
        struct weft__meeting_point at = *point;
        memcpy(at.nonce, meeting->nonce, sizeof(at.nonce));
        if (num_ids < WEFT__MAX_BEACON_IDS && atomic_load(&meeting->num_ranks) > 0)
            weft__meeting_point_to_id(&at, &ids[num_ids++]);
    }
    if (is_same_user(fd))
        (void)!send(fd, ids, num_ids * sizeof(*ids), MSG_NOSIGNAL);
    close(fd);
}

/* ---------------------------------------------------------------- the observer's side */

static int is_mine(int32_t pid)
{
    char path[32];
    struct stat status;
    snprintf(path, sizeof(path), "/proc/%" PRId32, pid);
    return stat(path, &status) == 0 && (geteuid() == 0 || status.st_uid == geteuid());
}

/* Those that listen; the connections of a beacon have its name, too. */
static int32_t find_beacons(struct beacon *beacons, int32_t max_beacons)
{
    enum { LISTENS = 0x10000 };
    char line[256];
    int32_t num_beacons = 0;
    FILE *sockets = fopen("/proc/net/unix", "re");
    while (sockets != NULL && num_beacons < max_beacons &&
           fgets(line, sizeof(line), sockets) != NULL) {
        unsigned flags = 0;
        struct beacon *beacon = &beacons[num_beacons];
        const char *name = strstr(line, " @weft-job.");
        if (name != NULL && sscanf(line, "%*s %*s %*s %x", &flags) == 1 && (flags & LISTENS) &&
            sscanf(name, " @weft-job.%" SCNd32 ".%" SCNu16, &beacon->pid, &beacon->port) == 2 &&
            is_mine(beacon->pid))
            num_beacons++;
    }
    if (sockets != NULL)
        fclose(sockets);
    return num_beacons;
}

int32_t weft__beacon_list(int32_t *pids, int32_t max_pids)
{
    struct beacon beacons[MAX_BEACONS];
    const int32_t num_beacons = find_beacons(beacons, MAX_BEACONS);
    int32_t num_pids = 0;
    for (int32_t i = 0; i < num_beacons; i++) {
        int32_t first = 0;
        while (beacons[first].pid != beacons[i].pid)
            first++;
        if (first == i && num_pids++ < max_pids)
            pids[num_pids - 1] = beacons[i].pid;
    }
    return num_pids;
}

/* Reads until the beacon closes the connection; -1: it has not done so in time. */
static ssize_t read_all(int fd, void *memory, size_t max_bytes, int64_t deadline_ns)
{
    size_t num_bytes = 0;
    for (;;) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        if (poll(&readable, 1, weft__poll_timeout_ms(deadline_ns)) <= 0)
            return -1;
        const ssize_t received = recv(fd, (char *)memory + num_bytes, max_bytes - num_bytes, 0);
        if (received <= 0)
            return (ssize_t)num_bytes;
        num_bytes += (size_t)received;
    }
}

static weft_result ask(struct beacon beacon, int64_t deadline_ns, weft_unique_id *ids,
                       int32_t *num_ids)
{
    struct sockaddr_un address;
    const socklen_t bytes = name_beacon(beacon, &address);
    const int fd = make_socket();
    if (fd < 0)
        return weft__system_error("cannot make a Unix socket");
    ssize_t num_bytes = -1;
    /* With EAGAIN its queue is full: it does not answer. */
    if (connect(fd, (const struct sockaddr *)&address, bytes) == 0 || errno != EAGAIN)
        num_bytes = is_same_user(fd) || geteuid() == 0
                        ? read_all(fd, ids, WEFT__MAX_BEACON_IDS * sizeof(*ids), deadline_ns)
                        : 0;
    close(fd);
    if (num_bytes < 0)
        return weft__error(WEFT_ERROR_TIMEOUT,
                           "process %" PRId32 ", which has the rendezvous of a job, does not "
                           "answer: it is stopped, or too busy",
                           beacon.pid);
    *num_ids = (int32_t)((size_t)num_bytes / sizeof(*ids));
    return WEFT_OK;
}

weft_result weft__beacon_ask(int32_t pid, int64_t timeout_ms, weft_unique_id *ids, int32_t max_ids,
                             int32_t *num_ids)
{
    const int64_t deadline_ns = weft__now_ns() + timeout_ms * WEFT__NS_PER_MS;
    struct beacon beacons[MAX_BEACONS];
    const int32_t num_beacons = find_beacons(beacons, MAX_BEACONS);
    int32_t num_found = 0, num_written = 0;
    for (int32_t i = 0; i < num_beacons; i++) {
        weft_unique_id found[WEFT__MAX_BEACON_IDS];
        int32_t num_of_beacon = 0;
        if (beacons[i].pid != pid)
            continue;
        num_found++;
        WEFT__TRY(ask(beacons[i], deadline_ns, found, &num_of_beacon));
        for (int32_t k = 0; k < num_of_beacon && num_written < max_ids; k++)
            ids[num_written++] = found[k];
    }
    if (num_found == 0)
        return weft__invalid("pid is %" PRId32 "; no process of this user on this host has this "
                             "number and the rendezvous of a job",
                             pid);
    *num_ids = num_written;
    return WEFT_OK;
}
