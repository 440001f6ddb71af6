/* SPDX-License-Identifier: MIT */
/*
 * An engine for tests: all ranks in one thread, and a seed decides what happens. Messages overtake
 * each other, wait, find the engine full; writes land in pieces, long after or long before they are
 * said to be done; sources are read as late as they may be. Nothing comes twice, as no engine lets
 * it. Ranks die and links are cut when the test says so.
 */
#pragma once

#include "net/engine.h"
#include "net/net.h"

enum { NET_FAKE_MAX_RANKS = 64 };

struct net_fake_options {
    uint64_t seed;
    uint32_t max_delay;   /* in calls of progress, by any rank */
    uint32_t full_one_in; /* of so many messages one finds the engine full; 0: none */
};

/* As a config's `custom`, with a world. */
extern const struct weft__net_engine net_fake_engine;

/* A world of nets. NULL: no memory. */
struct net_fake *net_fake_create(const struct net_fake_options *options);
/* When all of its nets are closed. */
void net_fake_destroy(struct net_fake *world);

/* From now on the rank's net must not be used, only closed. Of what it has sent some arrives; its
 * peers are told within max_delay. */
void net_fake_kill(struct net_fake *world, int32_t rank);
/* Nothing passes between the two any more, and nobody is told. */
void net_fake_cut(struct net_fake *world, int32_t one, int32_t other);
