/* SPDX-License-Identifier: MIT */
#include "net_pair.h"

#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/cmocka.h"
#include "net_post.h"
#include "net_puppet.h"

const uint8_t secret[WEFT__NONCE_BYTES] = {9, 8, 7};

struct weft__net *open_net(int32_t rank, uint8_t first_of_secret)
{
    struct weft__net *net = NULL;
    struct weft__net_config config = {.engine = "tcp",
                                      .rank = rank,
                                      .num_ranks = NUM_RANKS,
                                      .close_ms = 50,
                                      .timeout_ms = 20000,
                                      .devices = "lo"};
    memcpy(config.secret, secret, sizeof(secret));
    config.secret[0] = first_of_secret;
    assert_ok(weft__net_open(&config, &net));
    return net;
}

void open_pair(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        pair->nets[rank] = open_net(rank, secret[0]);
        assert_ok(weft__net_address(pair->nets[rank], &pair->blobs[rank]));
    }
    pair->heap = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pair->heap, MAP_FAILED);
}

void connect_rank(struct pair *pair, int32_t rank)
{
    assert_ok(weft__net_connect(pair->nets[rank], pair->blobs));
    if (rank == 0)
        return;
    assert_ok(weft__net_reg(pair->nets[1], 0, pair->heap, HEAP_BYTES, WEFT__NET_HOST_MEMORY));
    assert_ok(
        weft__net_reg(pair->nets[1], 1, pair->words, sizeof(pair->words), WEFT__NET_HOST_MEMORY));
}

void close_pair(struct pair *pair)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        if (pair->nets[rank] != NULL)
            weft__net_close(pair->nets[rank]);
    munmap(pair->heap, HEAP_BYTES);
}

void expect_to_meet(struct pair *pair)
{
    struct weft__net_region_card card;
    weft__net_tell_region(pair->nets[1], 1, &card);
    assert_ok(weft__net_learn_region(pair->nets[0], 1, 1, &card));
    assert_ok(net_signal(pair->nets[0], 1, weft__net_place(1, 8 * WORD), 5));
    for (int ms = 0; ms < 10000 && atomic_load(&pair->words[WORD]) == 0; ms++) {
        if (weft__net_progress(pair->nets[0]) + weft__net_progress(pair->nets[1]) == 0)
            poll(NULL, 0, 1);
        assert_ok(weft__net_peer_error(pair->nets[0], 1));
    }
    assert_int_equal(atomic_load(&pair->words[WORD]), 5);
    for (int rank = 0; rank < 2;
         rank++) { /* the kernel has seen how far they are from each other */
        assert_ok(weft__net_find_transports(pair->nets[rank]));
        const double us = weft__net_round_trip_us(pair->nets[rank]);
        assert_true(us > 0 && us < 10e6);
    }
}

void expect_failure(struct weft__net *net, int32_t peer, const char *reason)
{
    for (int ms = 0; ms < 10000 && weft__net_peer_error(net, peer) == WEFT_OK; ms++)
        if (weft__net_progress(net) == 0)
            poll(NULL, 0, 1);
    assert_error(weft__net_peer_error(net, peer), WEFT_ERROR_RANK_FAILED, reason);
}

int num_descriptors(void)
{
    int num = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all) != NULL)
        num++;
    closedir(all);
    return num;
}

struct weft__tcp_address address_of(const struct pair *pair, int32_t rank)
{
    return puppet_addresses(&pair->blobs[rank]).at[0];
}
