/* SPDX-License-Identifier: MIT */
#include "net/work_queue.h"

#include "comm/error.h"
#include "net/net.h"

static struct weft__net_put put_of(const struct weft__work_slot *work)
{
    return (struct weft__net_put){.peer = work->peer,
                                  .source = work->source,
                                  .target = work->target,
                                  .num_bytes = work->num_bytes,
                                  .word = work->word,
                                  .add = work->add};
}

weft_result weft__work_start(struct weft__net *net, const struct weft__work_slot *work,
                             struct weft__net_request *request)
{
    const struct weft__net_put put = put_of(work);
    const struct weft__net_get get = {.peer = work->peer,
                                      .source = work->source,
                                      .target = work->target,
                                      .num_bytes = work->num_bytes};
    const struct weft__net_fetch_add fetch_add = {
        .peer = work->peer, .word = work->word, .add = work->add, .target = work->target};
    *request = (struct weft__net_request){.num_left = 0};
    switch (work->operation) {
    case WEFT__WORK_PUT:
        return weft__net_put(net, &put, request);
    case WEFT__WORK_PUT_SIGNAL:
        return weft__net_put_signal(net, &put, request);
    case WEFT__WORK_SIGNAL:
        return weft__net_signal(net, work->peer, work->word, work->add);
    case WEFT__WORK_FLUSH:
        return weft__net_flush(net, work->peer, request);
    case WEFT__WORK_GET:
        return weft__net_get(net, &get, request);
    case WEFT__WORK_FETCH_ADD:
        return weft__net_fetch_add(net, &fetch_add, request);
    default:
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "operation is %u", work->operation);
    }
}

static int can_start(const struct weft__net *net, const struct weft__work_slot *work)
{
    const struct weft__net_put put = put_of(work);
    return weft__net_check_put_signal(net, &put) == WEFT_OK;
}

int weft__work_can_share(const struct weft__net *net, const struct weft__work_slot *work,
                         const struct weft__work_slot *other)
{
    return work->operation == WEFT__WORK_PUT_SIGNAL && other->operation == WEFT__WORK_PUT_SIGNAL &&
           work->peer == other->peer && work->loss == other->loss &&
           (work->num_bytes == 0 || other->num_bytes == 0) && can_start(net, work) &&
           can_start(net, other);
}

weft_result weft__work_start_both(struct weft__net *net, const struct weft__work_slot *work,
                                  const struct weft__work_slot *other,
                                  struct weft__net_request *request)
{
    const struct weft__work_slot *add_alone = other->num_bytes == 0 ? other : work;
    const struct weft__net_put put = put_of(add_alone == other ? work : other);
    const struct weft__net_add also = {.word = add_alone->word, .add = add_alone->add};
    return weft__net_put_signal_and_add(net, &put, &also, request);
}
