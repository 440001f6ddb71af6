/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/fd_exchange.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/thread.h"

enum {
    RETRY_MS = 2,   /* when a peer's queue was full; it holds only a handful */
    LOOK_UP_MS = 50 /* between looks at the status */
};

struct letter {
    uint64_t key;
    int32_t rank;
    int32_t round;
    uint64_t num_fds; /* that come with it */
};

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

struct progress {
    const struct weft__fd_exchange *exchange;
    int fd;
    int *fds;
    unsigned char *sent, *received; /* [num_ranks] */
    int32_t num_unsent, num_missing;
};

/* Abstract names begin with a zero byte and live only as long as the socket. */
static socklen_t socket_address(const uint64_t socket_id[2], struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                          "weft-%016" PRIx64 "%016" PRIx64, socket_id[0], socket_id[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

weft_result weft__fd_socket_open(uint64_t socket_id[2], int *socket_fd)
{
    const int on = 1;
    struct sockaddr_un address;
    weft_result result = weft__random_bytes(socket_id, 2 * sizeof(socket_id[0]));
    if (result != WEFT_OK)
        return result;
    int fd = weft__descriptor_keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return weft__system_error("cannot make a Unix socket, over which ranks share memory");
    socklen_t address_bytes = socket_address(socket_id, &address);
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
        bind(fd, (const struct sockaddr *)&address, address_bytes) != 0) {
        result = weft__system_error("cannot name a Unix socket, over which ranks share memory");
        close(fd);
        return result;
    }
    *socket_fd = fd;
    return WEFT_OK;
}

/* That its queue is full is no reason to wait: then it is readable. */
static int is_neighbour(const struct weft__fd_exchange *exchange, int32_t rank)
{
    return rank != exchange->rank &&
           exchange->table[rank].host_key == exchange->table[exchange->rank].host_key;
}

static void attach_fd(struct msghdr *message, union control *control, int fd)
{
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
}

enum outcome {
    SENT,
    NOT_NOW,  /* the other rank's queue is full, or this one's is empty */
    NOT_EVER, /* errno says why: no memory, or a rule of the system (seccomp, SELinux, ...) */
};

static enum outcome outcome_of_errno(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR ||
                   errno == ECONNREFUSED || errno == ETOOMANYREFS
               ? NOT_NOW
               : NOT_EVER;
}

static enum outcome send_fd(const struct weft__fd_exchange *exchange, int32_t rank, int fd)
{
    struct letter letter = {
        .key = exchange->key, .rank = exchange->rank, .round = exchange->round, .num_fds = fd >= 0};
    struct iovec part = {.iov_base = &letter, .iov_len = sizeof(letter)};
    struct sockaddr_un address;
    union control control = {{0}};
    struct msghdr message = {.msg_name = &address,
                             .msg_namelen =
                                 socket_address(exchange->table[rank].socket_id, &address),
                             .msg_iov = &part,
                             .msg_iovlen = 1};
    if (fd >= 0)
        attach_fd(&message, &control, fd);
    return sendmsg(exchange->socket_fd, &message, MSG_NOSIGNAL) == sizeof(letter)
               ? SENT
               : outcome_of_errno();
}

/* Keeps the first descriptor, or none if this process has no free number for it. A stranger may
 * have sent more. */
static void take_fds(const struct cmsghdr *header, int *fd)
{
    size_t num_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t index = 0; index < num_fds; index++) {
        int received;
        memcpy(&received, CMSG_DATA(header) + index * sizeof(received), sizeof(received));
        if (*fd < 0)
            *fd = weft__descriptor_keep(received);
        else
            close(received);
    }
}

/* Receives one letter: its descriptor (-1: none) and the sender that the kernel vouches for.
 * Returns the bytes of the letter, -1 if there is none. */
static ssize_t receive_fd(int socket_fd, struct letter *letter, int *fd, struct ucred *sender)
{
    struct iovec part = {.iov_base = letter, .iov_len = sizeof(*letter)};
    union control control = {{0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    *fd = -1;
    *sender = (struct ucred){.pid = -1};
    ssize_t num_bytes = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    if (num_bytes < 0)
        return -1;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET)
            continue;
        if (header->cmsg_type == SCM_CREDENTIALS)
            memcpy(sender, CMSG_DATA(header), sizeof(*sender));
        else if (header->cmsg_type == SCM_RIGHTS)
            take_fds(header, fd);
    }
    return num_bytes;
}

static int is_expected(const struct progress *progress, ssize_t num_bytes,
                       const struct letter *letter, const struct ucred *sender)
{
    const struct weft__fd_exchange *exchange = progress->exchange;
    if (num_bytes != sizeof(*letter) || letter->key != exchange->key ||
        letter->round != exchange->round || letter->rank < 0 ||
        letter->rank >= exchange->num_ranks || !is_neighbour(exchange, letter->rank) ||
        progress->received[letter->rank])
        return 0;
    const struct weft__identity *named = &exchange->table[letter->rank];
    return sender->pid == named->pid && sender->uid == named->uid;
}

static weft_result take(struct progress *progress, const struct letter *letter, int fd)
{
    progress->fds[letter->rank] = fd;
    progress->received[letter->rank] = 1;
    progress->num_missing--;
    if (letter->num_fds == 0 || fd >= 0)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_SYSTEM,
                       "rank %d cannot map the memory of rank %d, whose file descriptor does not "
                       "arrive over an abstract Unix socket: this process has no number left for "
                       "it (RLIMIT_NOFILE), or a rule of the system keeps it out",
                       progress->exchange->rank, letter->rank);
}

static weft_result receive_all(struct progress *progress)
{
    struct letter letter;
    struct ucred sender;
    int fd;
    ssize_t num_bytes;
    while ((num_bytes = receive_fd(progress->exchange->socket_fd, &letter, &fd, &sender)) >= 0) {
        if (is_expected(progress, num_bytes, &letter, &sender))
            WEFT__TRY(take(progress, &letter, fd));
        else if (fd >= 0)
            close(fd);
    }
    if (outcome_of_errno() == NOT_NOW)
        return WEFT_OK;
    return weft__system_error(
        "rank %d cannot map the memory of other ranks: receiving a file descriptor over an "
        "abstract Unix socket failed",
        progress->exchange->rank);
}

/* Sends to the ranks after this one first: else all ranks would find the queue of rank 0 full. */
static weft_result send_all(struct progress *progress)
{
    const struct weft__fd_exchange *exchange = progress->exchange;
    for (int32_t i = 1; i < exchange->num_ranks; i++) {
        const int32_t rank = (exchange->rank + i) % exchange->num_ranks;
        if (!is_neighbour(exchange, rank) || progress->sent[rank])
            continue;
        const enum outcome outcome = send_fd(exchange, rank, progress->fd);
        if (outcome == NOT_EVER)
            return weft__system_error(
                "rank %d cannot share its memory with rank %d: sending it a file descriptor over "
                "an abstract Unix socket failed",
                exchange->rank, rank);
        if (outcome == NOT_NOW)
            continue;
        progress->sent[rank] = 1;
        progress->num_unsent--;
    }
    return WEFT_OK;
}

static weft_result expired(const struct progress *progress)
{
    const struct weft__fd_exchange *exchange = progress->exchange;
    int32_t rank = 0;
    while (!is_neighbour(exchange, rank) || (progress->sent[rank] && progress->received[rank]))
        rank++;
    return weft__error(WEFT_ERROR_TIMEOUT, "rank %d did not share its memory within %u ms", rank,
                       exchange->timeout_ms);
}

static weft_result exchange_all(struct progress *progress)
{
    const struct weft__fd_exchange *exchange = progress->exchange;
    int64_t deadline_ns = 0;
    int32_t num_left = INT32_MAX;
    for (;;) {
        WEFT__TRY(send_all(progress));
        WEFT__TRY(receive_all(progress));
        if (progress->num_unsent == 0 && progress->num_missing == 0)
            return WEFT_OK;
        /* The deadline counts from the last letter: a thousand ranks write a million letters. */
        if (progress->num_unsent + progress->num_missing < num_left) {
            num_left = progress->num_unsent + progress->num_missing;
            deadline_ns = weft__now_ns() + exchange->timeout_ms * WEFT__NS_PER_MS;
        }
        weft_result result = weft__status_check(exchange->status);
        if (result != WEFT_OK)
            return result;
        if (weft__now_ns() >= deadline_ns)
            return expired(progress);
        struct pollfd readable = {.fd = exchange->socket_fd, .events = POLLIN};
        poll(&readable, 1, progress->num_unsent > 0 ? RETRY_MS : LOOK_UP_MS);
    }
}

weft_result weft__fd_exchange(const struct weft__fd_exchange *exchange, int fd, int *fds)
{
    struct progress progress = {.exchange = exchange, .fd = fd, .fds = fds};
    for (int32_t rank = 0; rank < exchange->num_ranks; rank++) {
        fds[rank] = -1;
        progress.num_unsent += is_neighbour(exchange, rank);
    }
    progress.num_missing = progress.num_unsent;
    memset(exchange->marks, 0, 2 * (size_t)exchange->num_ranks);
    progress.sent = exchange->marks;
    progress.received = progress.sent + exchange->num_ranks;
    const weft_result result = exchange_all(&progress);
    for (int32_t rank = 0; result != WEFT_OK && rank < exchange->num_ranks; rank++) {
        if (fds[rank] >= 0)
            close(fds[rank]);
        fds[rank] = -1;
    }
    return result;
}
