/* SPDX-License-Identifier: MIT */
#include "api/check.h"
#include "api/objects.h"
#include "ep/low_latency.h"

static weft_result check(const weft_ll *ll, const int32_t *mask, weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_LL, ll, "ll"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    weft_comm *comm = ll->ep->comm;
    if (!wp_ll_has_masks(&ll->device.masks))
        return weft__invalid("ll: its on_missing is WEFT_LL_FAIL, must be WEFT_LL_MASK");
    WEFT__TRY(weft__check_not_null(mask, "mask"));
    return weft__machine_of(comm)->check_pointer(comm, mask, "mask");
}

weft_result weft_ll_mask(weft_ll *ll, const int32_t *mask, weft_stream *stream)
{
    WEFT__TRY(check(ll, mask, stream));
    weft__current_call = WEFT__CALL_LL_MASK;
    return weft__ll_mask(ll, mask, NULL, stream);
}

weft_result weft_ll_query_mask(weft_ll *ll, int32_t *mask, weft_stream *stream)
{
    WEFT__TRY(check(ll, mask, stream));
    weft__current_call = WEFT__CALL_LL_QUERY_MASK;
    return weft__ll_mask(ll, NULL, mask, stream);
}

weft_result weft_ll_unmask(weft_ll *ll, const int32_t *mask, uint64_t epoch, weft_stream *stream)
{
    WEFT__TRY(check(ll, mask, stream));
    if (epoch <= ll->epoch)
        return weft__invalid("epoch is %llu, must be greater than %llu, that of the call before",
                             (unsigned long long)epoch, (unsigned long long)ll->epoch);
    if (stream->machine->stream_is_capturing(stream))
        return weft__invalid(
            "stream: weft_ll_unmask cannot be captured, each call has its own epoch");
    weft__current_call = WEFT__CALL_LL_UNMASK;
    return weft__ll_unmask(ll, mask, epoch, stream);
}
