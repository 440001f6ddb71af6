/* SPDX-License-Identifier: MIT */
/* The ranks of a host give each other a file descriptor over Unix sockets without a file. */
#pragma once

#include "comm/failure/status.h"
#include "comm/rendezvous/wire.h"
#include "weft.h"

/* A socket under a random name, which goes into socket_id for the others to find it. */
weft_result weft__fd_socket_open(uint64_t socket_id[2], int *socket_fd);

struct weft__fd_exchange {
    int socket_fd;
    int32_t rank, num_ranks;
    uint32_t timeout_ms;
    uint64_t key;                       /* of the communicator */
    int32_t round;                      /* of its exchanges: letters of failed ones may be late */
    const struct weft__identity *table; /* [num_ranks] */
    struct weft__status *status;        /* a failure ends the exchange */
    unsigned char
        *marks; /* [2 * num_ranks] scratch: no rank runs out of memory while others wait */
};

/* Collective over the ranks with this rank's host key: gives `fd` (-1: none) to all and puts theirs
 * into fds[num_ranks], -1 for itself, for ranks of other hosts and for those that give none. Takes
 * them only from the processes that the table names. On failure all of fds are -1. Between two
 * exchanges all ranks must meet otherwise: letters that come early are thrown away. */
weft_result weft__fd_exchange(const struct weft__fd_exchange *exchange, int fd, int *fds);
