/* SPDX-License-Identifier: MIT */
/* What calls of low latency need on one rank, for tests of what is refused: objects, memory, and
 * arguments that are right, of which a test makes one wrong. Nobody looks at the rows:
 * oracle/ll_seat.h is for tests that do. */
#pragma once

#include "harness/ranks.h"

enum {
    LL_SCENE_RANKS = 2,
    LL_SCENE_TOKENS = 4,
    LL_SCENE_TOPK = 2,
    LL_SCENE_EXPERTS = 6,
    LL_SCENE_HIDDEN = 16,
    LL_SCENE_CAPACITY = 8,
    LL_SCENE_LOCAL_EXPERTS = LL_SCENE_EXPERTS / LL_SCENE_RANKS
};

struct ll_scene {
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ll *by_rank;
    weft_ll *by_expert; /* its answers are rows; a test may put another one of this layout here */
    float *x;           /* [tokens][hidden] */
    float *rows;        /* [local experts][capacity][hidden], or [ranks][tokens][hidden] */
    float *out;         /* as x */
    float *weights;     /* [tokens][topk] */
    int32_t *topk_idx;  /* the same */
    int32_t *numbers;   /* what dispatch counts, and room behind it */
};

/* Both return 0, or 1 when a check has failed. */
int ll_scene_open(struct ranks_context *context, struct ll_scene *scene);
int ll_scene_close(struct ll_scene *scene);

weft_ep_config ll_scene_ep_config(void);
weft_ll_config ll_scene_config(weft_ll_layout layout);

/* Arguments that are right in these phases: for scene->by_expert those of its layout, with answers
 * that are rows; for any other weft_ll those of by_rank. */
weft_ll_dispatch_args ll_scene_dispatch_args(const struct ll_scene *scene, const weft_ll *ll,
                                             weft_ll_phases phases);
weft_ll_combine_args ll_scene_combine_args(const struct ll_scene *scene, const weft_ll *ll,
                                           weft_ll_phases phases);

/* The calls with these arguments. */
weft_result ll_scene_dispatch(const struct ll_scene *scene, weft_ll *ll, weft_ll_phases phases);
weft_result ll_scene_combine(const struct ll_scene *scene, weft_ll *ll, weft_ll_phases phases,
                             int32_t keep);

/* On ranks: the call is refused, with a message that contains `text`. */
#define REFUSED(call, text) CHECK_ERROR(call, WEFT_ERROR_INVALID_ARGUMENT, text)
