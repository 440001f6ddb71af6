/* SPDX-License-Identifier: MIT */
/* Accesses, as they come from the queue or from whoever owns the net. */
#include "comm/host/error.h"
#include "net/net_internal.h"

weft_result weft__net_post(struct weft__net *net, const struct wp_access *access,
                           struct weft__net_request *request)
{
    if (request != NULL)
        *request = (struct weft__net_request){.num_left = 0};
    switch (access->operation) {
    case WP_ACCESS_PUT:
        return weft__net_put(net, access, request);
    case WP_ACCESS_PUT_SIGNAL:
        return weft__net_put_signal(net, access, NULL, request);
    case WP_ACCESS_SIGNAL:
        return weft__net_signal(net, access);
    case WP_ACCESS_FLUSH:
        return weft__net_flush(net, access->rank, request);
    case WP_ACCESS_GET:
        return weft__net_get(net, access, request);
    case WP_ACCESS_FETCH_ADD:
        return weft__net_fetch_add(net, access, request);
    default:
        return weft__invalid("operation is %u", (unsigned)access->operation);
    }
}

static int is_sound_put_signal(const struct weft__net *net, const struct wp_access *access)
{
    return access->operation == WP_ACCESS_PUT_SIGNAL &&
           weft__net_check_put_signal(net, access) == WEFT_OK;
}

int weft__net_can_share(const struct weft__net *net, const struct wp_access *access,
                        const struct wp_access *other)
{
    return access->rank == other->rank && access->loss == other->loss &&
           (access->num_bytes == 0 || other->num_bytes == 0) && is_sound_put_signal(net, access) &&
           is_sound_put_signal(net, other);
}

weft_result weft__net_post_both(struct weft__net *net, const struct wp_access *access,
                                const struct wp_access *other, struct weft__net_request *request)
{
    const struct wp_access *add_alone = other->num_bytes == 0 ? other : access;
    const struct wp_access *put = add_alone == other ? access : other;
    if (request != NULL)
        *request = (struct weft__net_request){.num_left = 0};
    return weft__net_put_signal(net, put, add_alone, request);
}
