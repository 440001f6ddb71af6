/* SPDX-License-Identifier: MIT */
/* Accesses for the tests of src/net. */
#pragma once

#include "net/net.h"

static inline weft_result net_post_as(enum wp_access_operation operation, struct weft__net *net,
                                      const struct wp_access *access,
                                      struct weft__net_request *request)
{
    struct wp_access posted = *access;
    posted.operation = operation;
    return weft__net_post(net, &posted, request);
}

static inline weft_result net_flush(struct weft__net *net, int32_t peer,
                                    struct weft__net_request *request)
{
    const struct wp_access flush = {.operation = WP_ACCESS_FLUSH, .rank = peer};
    return weft__net_post(net, &flush, request);
}

static inline weft_result net_signal(struct weft__net *net, int32_t peer, uint64_t word,
                                     uint64_t add)
{
    const struct wp_access signal = {
        .operation = WP_ACCESS_SIGNAL, .rank = peer, .word = word, .add = add};
    return weft__net_post(net, &signal, NULL);
}
