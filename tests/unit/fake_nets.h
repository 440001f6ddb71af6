/* SPDX-License-Identifier: MIT */
/* Nets of ranks in one process, over the fake engine. */
#pragma once

#include <string.h>

#include "harness/cmocka.h"
#include "net/net.h"
#include "net_fake.h"

enum { FAKE_NETS_MAX = 4 };
static const uint8_t fake_secret[WEFT__NONCE_BYTES] = {9, 8, 7};

struct fake_nets {
    int32_t num_ranks;
    struct net_fake *world;
    struct weft__net *nets[FAKE_NETS_MAX];
    struct weft__doorbell *bells; /* [num_ranks] or NULL */
};

/* num_ranks and bells are set. Until fake_nets_connect, regions can be registered that addresses
 * tell of. */
static inline void fake_nets_open(struct fake_nets *fake, uint32_t max_delay)
{
    const struct net_fake_options options = {.seed = 1, .max_delay = max_delay};
    fake->world = net_fake_create(&options);
    assert_non_null(fake->world);
    for (int32_t rank = 0; rank < fake->num_ranks; rank++) {
        struct weft__net_config config = {.custom = &net_fake_engine,
                                          .rank = rank,
                                          .num_ranks = fake->num_ranks,
                                          .close_ms = 1,
                                          .bell = fake->bells ? &fake->bells[rank] : NULL,
                                          .world = fake->world};
        memcpy(config.secret, fake_secret, sizeof fake_secret);
        assert_ok(weft__net_open(&config, &fake->nets[rank]));
    }
}

static inline void fake_nets_connect(struct fake_nets *fake)
{
    struct weft__net_blob blobs[FAKE_NETS_MAX];
    for (int32_t rank = 0; rank < fake->num_ranks; rank++)
        assert_ok(weft__net_address(fake->nets[rank], &blobs[rank]));
    for (int32_t rank = 0; rank < fake->num_ranks; rank++)
        assert_ok(weft__net_connect(fake->nets[rank], blobs));
}

/* Those that a test has not closed itself, which it tells by NULL. */
static inline void fake_nets_close(struct fake_nets *fake)
{
    for (int32_t rank = 0; rank < fake->num_ranks; rank++)
        if (fake->nets[rank] != NULL)
            weft__net_close(fake->nets[rank]);
    net_fake_destroy(fake->world);
}
