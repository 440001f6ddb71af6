/* SPDX-License-Identifier: MIT */
/* Accesses, as they come from the queue or from whoever owns the net. */
#include "comm/error.h"
#include "net/net_internal.h"

weft_result weft__net_post(struct weft__net *net, const struct weft_access *access,
                           struct weft__net_request *request)
{
    if (request != NULL)
        *request = (struct weft__net_request){.num_left = 0};
    switch (access->operation) {
    case WEFT_ACCESS_PUT:
        return weft__net_put(net, access, request);
    case WEFT_ACCESS_PUT_SIGNAL:
        return weft__net_put_signal(net, access, NULL, request);
    case WEFT_ACCESS_SIGNAL:
        return weft__net_signal(net, access);
    case WEFT_ACCESS_FLUSH:
        return weft__net_flush(net, access->rank, request);
    case WEFT_ACCESS_GET:
        return weft__net_get(net, access, request);
    case WEFT_ACCESS_FETCH_ADD:
        return weft__net_fetch_add(net, access, request);
    default:
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "operation is %u",
                           (unsigned)access->operation);
    }
}

static int is_sound_put_signal(const struct weft__net *net, const struct weft_access *access)
{
    return access->operation == WEFT_ACCESS_PUT_SIGNAL &&
           weft__net_check_put_signal(net, access) == WEFT_OK;
}

int weft__net_can_share(const struct weft__net *net, const struct weft_access *access,
                        const struct weft_access *other)
{
    return access->rank == other->rank && access->loss == other->loss &&
           (access->num_bytes == 0 || other->num_bytes == 0) && is_sound_put_signal(net, access) &&
           is_sound_put_signal(net, other);
}

weft_result weft__net_post_both(struct weft__net *net, const struct weft_access *access,
                                const struct weft_access *other, struct weft__net_request *request)
{
    const struct weft_access *add_alone = other->num_bytes == 0 ? other : access;
    const struct weft_access *put = add_alone == other ? access : other;
    *request = (struct weft__net_request){.num_left = 0};
    return weft__net_put_signal(net, put, add_alone, request);
}
