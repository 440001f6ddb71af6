/* SPDX-License-Identifier: MIT */
/* Runs one scenario on every engine of src/net: step by step, as parties of one thread (engine
 * fake), or each in a process of its own. Heaps and words are memory that all processes share, so
 * that a source can look at what has arrived at its target. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "net/net.h"
#include "net_fake.h"

enum {
    NET_MAX_PARTIES = 16,
    NET_MAX_WORDS = 256,
    NET_WORDS_REGION = 2,
    NET_NUM_REGIONS,
    NET_NUM_STEPS = 3, /* of a region that grows */
    NET_NUM_CARDS = NET_NUM_REGIONS * (1 + NET_NUM_STEPS),
    NET_HEAP_FILL = 0xa5
};

enum net_verdict {
    NET_AGAIN,
    NET_IDLE, /* again, but not before something has come */
    NET_PASSED,
    NET_FAILED
};

struct net_shared { /* by all parties */
    _Atomic int32_t num_passed, num_failed, num_arrived, num_connected, num_registered;
    _Atomic uint32_t killed; /* bit per rank */
    _Atomic uint64_t words[NET_MAX_PARTIES][NET_MAX_WORDS];
    struct {
        size_t num_bytes;
        unsigned char bytes[16384];
    } blobs[NET_MAX_PARTIES];
    struct weft__net_region_card cards[NET_MAX_PARTIES][NET_NUM_CARDS];
};

/* Memory that the net reaches by functions alone, which have its address. */
struct net_device {
    unsigned char *memory;
    _Atomic uint64_t num_bytes;
    uint64_t num_reads;
    enum { NET_WORKS, NET_BROKEN } state; /* broken: they fail */
};

struct net_party {
    int32_t rank, num_ranks;
    const struct net_world *world;
    struct net_shared *shared;
    struct weft__net *net;
    unsigned char *heap;     /* region 0 */
    unsigned char *staging;  /* region 1, which nobody else writes */
    _Atomic uint64_t *words; /* region 2 */
    struct net_device
        devices[NET_NUM_REGIONS]; /* that the regions are in, if the world has them there */
    /* Steps, the last of each region, of which it hears while it puts already. */
    enum { NET_KNOWS_FIRST_STEPS, NET_KNOWS_ALL_STEPS } knows;
    uint64_t random;
    void *own; /* the scenario's */
};

struct net_world {
    const char *engine;
    const char *transports;
    int32_t num_ranks;
    uint64_t seed;
    size_t heap_bytes, staging_bytes;
    /* A bit per region: */
    uint32_t on_device; /* the net does not get its address */
    uint32_t by_writes; /* the engine gets it, but the net must not use it */
    uint32_t growing;   /* the engine gets it in steps */
    size_t max_message_bytes, min_write_bytes;
    uint32_t max_delay, full_one_in;    /* of engine fake */
    int32_t victim;                     /* rank that may end by net_kill_self or net_stop_self */
    enum { NET_STAY, NET_LEAVE } after; /* whether who has passed helps the others on */
    void *(*begin)(struct net_party *party); /* makes `own` */
    enum net_verdict (*step)(struct net_party *party);
    void (*end)(void *own);
    /* What must be true once the party has closed its net (processes only); NULL: nothing. */
    enum net_verdict (*closed)(const struct net_party *party);
};

enum { NET_NO_VICTIM = -1 };

/* 0 if all parties passed. What failed goes to standard error. */
int net_world_run(const struct net_world *world);
/* The heap of any party. */
unsigned char *net_heap(const struct net_party *party, int32_t rank);
/* The end of this party's process, or, on fake, of its life; returns there. */
void net_kill_self(struct net_party *party);
/* The same, but the process stays, stopped; on fake nothing passes to or from it any more. */
void net_stop_self(struct net_party *party);
/* Whether the victim has done so. */
int net_is_over(const struct net_party *party, int32_t rank);

/* Whether the engine can be had; if not, says why. */
int net_engine_is_there(const char *engine);

/* Place of the word with this number, at any party. */
uint64_t net_word(uint32_t number);

uint64_t net_draw(uint64_t *random, uint64_t below);

enum net_verdict net_fail(const struct net_party *party, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
