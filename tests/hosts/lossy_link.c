/* SPDX-License-Identifier: MIT */
/* A network between hosts that loses packets and delays each by another time, so that they overtake
 * one another: what `tc netem loss 1% delay 0ms 20ms` does, for kernels without it, and from a
 * seed. Each host gets a TUN interface "lossy"; the host number of a packet is the last byte of its
 * IPv4 address, less one. usage: lossy_link LOSS_PERCENT JITTER_MS SEED PID...   (a process of each
 * host; runs until it is killed) */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "workload/clock.h"
#include "workload/rng.h"

enum { MAX_HOSTS = 8, MAX_PACKET_BYTES = 1500, MAX_WAITING = 4096, LAST_ADDRESS_BYTE = 19 };

struct packet {
    int64_t due_ns;
    uint32_t host;
    uint32_t num_bytes;
    unsigned char bytes[MAX_PACKET_BYTES];
};

struct link {
    uint32_t num_hosts;
    struct pollfd hosts[MAX_HOSTS];
    uint32_t loss_percent, jitter_us;
    struct rng rng;
    uint32_t num_waiting;
    struct packet *waiting[MAX_WAITING]; /* the latest first */
};

/* In the network namespace of a process. */
static int open_interface(const char *pid)
{
    char path[64];
    struct ifreq request = {.ifr_name = "lossy", .ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(path, sizeof(path), "/proc/%.20s/ns/net", pid);
    int namespace_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace_fd < 0 || setns(namespace_fd, CLONE_NEWNET) != 0)
        return -1;
    close(namespace_fd);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0)
        return fd;
    return -1;
}

static void insert(struct link *link, struct packet *packet)
{
    uint32_t place = link->num_waiting++;
    for (; place > 0 && link->waiting[place - 1]->due_ns < packet->due_ns; place--)
        link->waiting[place] = link->waiting[place - 1];
    link->waiting[place] = packet;
}

/* 0 when there is nothing more to take for now. A packet is lost by chance, or for lack of room. */
static int take(struct link *link, int fd)
{
    struct packet packet;
    ssize_t num_bytes = read(fd, packet.bytes, sizeof(packet.bytes));
    if (num_bytes <= 0)
        return 0;
    if (num_bytes <= LAST_ADDRESS_BYTE || packet.bytes[0] >> 4 != 4)
        return 1;
    packet.num_bytes = (uint32_t)num_bytes;
    packet.host = packet.bytes[LAST_ADDRESS_BYTE] - 1u;
    packet.due_ns = clock_ns() + (int64_t)rng_below(&link->rng, link->jitter_us + 1) * 1000;
    struct packet *copy = NULL;
    if (packet.host < link->num_hosts && rng_below(&link->rng, 100) >= link->loss_percent &&
        link->num_waiting < MAX_WAITING)
        copy = malloc(sizeof(*copy));
    if (copy != NULL) {
        *copy = packet;
        insert(link, copy);
    }
    return 1;
}

static void deliver(struct link *link)
{
    while (link->num_waiting > 0 && link->waiting[link->num_waiting - 1]->due_ns <= clock_ns()) {
        struct packet *packet = link->waiting[--link->num_waiting];
        (void)!write(link->hosts[packet->host].fd, packet->bytes, packet->num_bytes);
        free(packet);
    }
}

static void wait_for_packets(struct link *link)
{
    struct timespec timeout = {.tv_sec = 1};
    if (link->num_waiting > 0) {
        const int64_t left_ns = link->waiting[link->num_waiting - 1]->due_ns - clock_ns();
        timeout = (struct timespec){.tv_nsec = left_ns > 0 ? left_ns : 0};
    }
    ppoll(link->hosts, link->num_hosts, &timeout, NULL);
}

int main(int argc, char **argv)
{
    static struct link link;
    if (argc < 5 || argc - 4 > MAX_HOSTS)
        return 2;
    link.loss_percent = (uint32_t)strtoul(argv[1], NULL, 10);
    link.jitter_us = (uint32_t)strtoul(argv[2], NULL, 10) * 1000;
    link.rng.state = strtoull(argv[3], NULL, 10);
    for (; link.num_hosts < (uint32_t)argc - 4; link.num_hosts++) {
        const int fd = open_interface(argv[4 + link.num_hosts]);
        if (fd < 0) {
            perror("lossy_link");
            return 1;
        }
        link.hosts[link.num_hosts] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        wait_for_packets(&link);
        for (uint32_t host = 0; host < link.num_hosts; host++)
            while (take(&link, link.hosts[host].fd))
                continue;
        deliver(&link);
    }
}
