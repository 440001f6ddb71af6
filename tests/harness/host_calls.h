/* SPDX-License-Identifier: MIT */
/* All calls of weft.h in which the hosts of all ranks take part, for tests of what holds for
 * each. */
#pragma once

#include "harness/ranks.h"

/* What the calls are made with; each rank has its own. Between nodes the scene has no weft_coll,
 * nor a weft_ep that is the scene's. */
struct host_scene {
    weft_comm *comm;
    weft_coll *coll;
    weft_ep *ep;               /* with it */
    weft_coll_record *capture; /* begun before each call */
    union {
        weft_comm *child;
        weft_arena *arena;
        weft_coll *coll;
        weft_ep *ep;
        weft_ll *ll;
        void *ptr;
    } made;
    char memory[64]; /* to be registered */
    char gathered[16 * RANKS_MAX];
};

struct host_call {
    const char *name;
    weft_result (*call)(struct host_scene *scene);
    void (*undo)(
        struct host_scene *scene); /* when it has succeeded; NULL: nothing is to be undone */
    enum { HOST_CALL_ANYWHERE, HOST_CALL_OF_ONE_NODE } where;
};

enum { NUM_HOST_CALLS = 15 };
extern const struct host_call host_calls[NUM_HOST_CALLS];

/* Collective, around each call: what it needs, and nothing of which is left. 0 = done. */
int host_scene_begin(struct host_scene *scene);
int host_scene_end(struct host_scene *scene);
