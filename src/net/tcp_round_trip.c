/* SPDX-License-Identifier: MIT */
#include <linux/tcp.h> /* whose tcp_info is longer than the C library's */
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#include "net/tcp_internal.h"

double weft__tcp_round_trip_us(int fd)
{
    struct tcp_info info;
    socklen_t num_bytes = sizeof info;
    const size_t needed = offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &num_bytes) != 0 || num_bytes < needed ||
        info.tcpi_min_rtt == UINT32_MAX)
        return 0;
    return info.tcpi_min_rtt;
}
