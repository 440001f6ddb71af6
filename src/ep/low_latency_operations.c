/* SPDX-License-Identifier: MIT */
/* Turns the user's arguments into those of the low-latency programs, and launches them. */
#include "ep/low_latency.h"
#include "programs/low_latency/ll_protocol.h"
#include "programs/low_latency/ll_usual.h"

static int sends(weft_ll_phases phases)
{
    return phases != WEFT_LL_RECEIVE;
}

static int receives(weft_ll_phases phases)
{
    return phases != WEFT_LL_SEND;
}

static enum wp_ll_phase phases_of(weft_ll_phases phases)
{
    return phases == WEFT_LL_SEND_AND_RECEIVE ? WP_LL_BOTH : (enum wp_ll_phase)phases;
}

/* ---------------------------------------------------------------- what is outstanding */

/* Whether the host knows it, once this one has been issued. */
static int is_known(weft_ll *ll, weft_stream *stream)
{
    ll->issued.is_in_graphs |= stream->machine->stream_is_capturing(stream);
    return !ll->issued.is_in_graphs;
}

/* An earlier send that has not been received yet would be received in place of what the call itself
 * sends. */
static weft_result check_phases(const char *operation, weft_ll_phases phases, int64_t num_under_way)
{
    if (phases == WEFT_LL_SEND_AND_RECEIVE && num_under_way > 0)
        return weft__invalid("phases is WEFT_LL_SEND_AND_RECEIVE (0), but a %s has been sent and "
                             "not been received yet: receive it first, or only send",
                             operation);
    if (!sends(phases) && num_under_way == 0)
        return weft__invalid("ll: no %s has been sent that is not received yet", operation);
    return WEFT_OK;
}

static weft_result check_has_result(const struct weft__ll_issued *issued)
{
    if (issued->rows_answered >= issued->rows_received)
        return weft__invalid("ll: there is no result that has been received and not been combined");
    return WEFT_OK;
}

weft_result weft__ll_check_dispatch(weft_ll *ll, weft_ll_phases phases, weft_stream *stream)
{
    const struct weft__ll_issued *issued = &ll->issued;
    const int32_t num_results = ll->device.plan.num_buffers;
    if (!is_known(ll, stream))
        return WEFT_OK;
    if (sends(phases) && issued->rows_sent - issued->rows_ended >= num_results)
        return weft__invalid("ll: %d results are outstanding, which is all that it has: receive "
                             "the combine of the oldest, or release it, first",
                             num_results);
    return check_phases("dispatch", phases, issued->rows_sent - issued->rows_received);
}

/* The buffer of the operation that comes after `count` others. */
static uint64_t buffer_after(const weft_ll *ll, int64_t count)
{
    return wp_ll_buffer(&ll->device.plan, (uint64_t)count);
}

int32_t weft__ll_capacity(const weft_ll *ll, int32_t wished)
{
    return wished > 0 ? wished : ll->device.plan.capacity;
}

int32_t weft__ll_words_per_expert(const weft_ll *ll, const weft_ll_combine_args *args)
{
    const int32_t capacity = weft__ll_capacity(ll, args->expert_capacity);
    return args->rows_per_signal > 0 ? (capacity - 1) / args->rows_per_signal + 1 : 1;
}

/* The rows of the next result to be answered are laid out by its dispatch's capacity. */
static weft_result check_capacity(const weft_ll *ll, int32_t capacity)
{
    const int32_t received = ll->issued.result_capacity[buffer_after(ll, ll->issued.rows_answered)];
    return weft__ll_capacity(ll, capacity) == received
               ? WEFT_OK
               : weft__invalid("expert_capacity is %d, must be that of the dispatch, %d", capacity,
                               received);
}

weft_result weft__ll_check_combine(weft_ll *ll, weft_ll_phases phases, int32_t capacity,
                                   weft_stream *stream)
{
    const struct weft__ll_issued *issued = &ll->issued;
    const int32_t num_results = ll->device.plan.num_buffers;
    const int64_t num_under_way = issued->answers_sent - issued->answers_received;
    if (!is_known(ll, stream))
        return WEFT_OK;
    if (sends(phases)) {
        WEFT__TRY(check_has_result(issued));
        WEFT__TRY(check_capacity(ll, capacity));
    }
    if (sends(phases) && num_under_way >= num_results)
        return weft__invalid(
            "ll: %d combines have been sent and not been received, which is all that it has",
            num_results);
    return check_phases("combine", phases, num_under_way);
}

weft_result weft__ll_check_release(weft_ll *ll, weft_stream *stream)
{
    const struct weft__ll_issued *issued = &ll->issued;
    if (!is_known(ll, stream))
        return WEFT_OK;
    WEFT__TRY(check_has_result(issued));
    if (issued->answers_received < issued->answers_sent)
        return weft__invalid("ll: a combine has been sent and not been received yet");
    return WEFT_OK;
}

int32_t weft__ll_num_tokens(const weft_ll *ll, weft_ll_phases phases)
{
    const struct weft__ll_issued *issued = &ll->issued;
    return sends(phases) ? issued->result_tokens[buffer_after(ll, issued->rows_answered)]
                         : issued->answer_tokens[buffer_after(ll, issued->answers_received)];
}

static void note_dispatch(weft_ll *ll, const weft_ll_dispatch_args *args)
{
    struct weft__ll_issued *issued = &ll->issued;
    if (sends(args->phases))
        issued->result_tokens[buffer_after(ll, issued->rows_sent++)] = args->num_tokens;
    if (receives(args->phases))
        issued->result_capacity[buffer_after(ll, issued->rows_received++)] =
            weft__ll_capacity(ll, args->expert_capacity);
}

static void note_combine(weft_ll *ll, weft_ll_phases phases, int keeps)
{
    struct weft__ll_issued *issued = &ll->issued;
    if (sends(phases)) {
        const uint64_t buffer = buffer_after(ll, issued->answers_sent++);
        issued->keeps[buffer] = keeps;
        issued->answer_tokens[buffer] =
            issued->result_tokens[buffer_after(ll, issued->rows_answered)];
        issued->rows_answered += !keeps;
    }
    if (receives(phases))
        issued->rows_ended += !issued->keeps[buffer_after(ll, issued->answers_received++)];
}

/* ---------------------------------------------------------------- arguments */

/* Where rows by expert have their scales. */
static struct wp_ll_scales scales_of(const struct wp_ll_plan *plan,
                                     const weft_ll_dispatch_args *args)
{
    const int is_byte = plan->quantisation.scale == WP_SCALE_UE8M0;
    const int32_t num_groups = (int32_t)(plan->hidden / plan->quantisation.group_elements);
    const int64_t column_words = (int64_t)(args->scale_column_bytes / sizeof(uint32_t));
    const int32_t num_columns = is_byte ? (num_groups + 3) / 4 : num_groups;
    const struct wp_ll_scales by_rows = {
        args->scales, num_groups, is_byte ? 1 : sizeof(uint32_t),
        num_groups,   1,          (int64_t)plan->capacity * num_groups};
    const struct wp_ll_scales by_columns = {
        args->scales, num_columns, sizeof(uint32_t), 1, column_words, num_columns * column_words};
    const struct wp_ll_scales none = {.words = NULL};
    if (args->scales == NULL)
        return none;
    return args->scale_column_bytes == 0 ? by_rows : by_columns;
}

/* Without rows_per_signal a word is for all rows of an expert. */
static struct wp_ll_row_signals signals_of(const weft_ll *ll, const weft_ll_combine_args *args)
{
    const int32_t capacity = weft__ll_capacity(ll, args->expert_capacity);
    const struct wp_ll_row_signals signals = {
        .words = args->row_signals,
        .at_least = args->signal_value,
        .rows_per_word = args->rows_per_signal > 0 ? args->rows_per_signal : capacity,
        .words_per_expert = weft__ll_words_per_expert(ll, args),
        .capacity = capacity,
    };
    return signals;
}

/* For a launch that tells how long it has waited, unless waited_ns is NULL. */
static struct wp_low_latency device_for(const weft_ll *ll, int64_t *waited_ns)
{
    struct wp_low_latency device = ll->device;
    device.waited_ns = waited_ns;
    return device;
}

static int is_aligned(const void *address)
{
    return (uintptr_t)address % WP_ALIGNED_BYTES == 0;
}

/* ---------------------------------------------------------------- the program of a launch */

struct compiled_variant {
    enum wp_program program;
    enum wp_program operation; /* its general program, for signals */
    struct wp_ll_variant is;
};

static const struct compiled_variant variants[] = {
#define X(name, operation, ...)                                                                    \
    {WP_PROGRAM_##name, WP_PROGRAM_low_latency_##operation, WP_LL_VARIANT_OF(__VA_ARGS__)},
#include "programs/low_latency/variants.def"
};

/* The general program of an operation. */
static enum wp_program base_of(enum wp_program operation, enum wp_ll_protocol protocol)
{
    if (protocol == WP_LL_PROTOCOL_SIGNALS)
        return operation;
    if (operation == WP_PROGRAM_low_latency_combine)
        return WP_PROGRAM_packet_low_latency_combine;
    return protocol == WP_LL_PROTOCOL_TOLD ? WP_PROGRAM_told_low_latency_dispatch
                                           : WP_PROGRAM_packet_low_latency_dispatch;
}

static enum wp_program choose_program(enum wp_program operation, struct wp_ll_variant wanted)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct wp_ll_variant *is = &variants[i].is;
        if (variants[i].operation == operation && is->protocol == wanted.protocol &&
            is->form == wanted.form && is->layout == wanted.layout && is->sends == wanted.sends &&
            is->faults == wanted.faults)
            return variants[i].program;
    }
    return base_of(operation, wanted.protocol);
}

/* Programs for usual rows tell of no experts. */
static enum wp_program dispatch_program(const struct wp_low_latency *device,
                                        const weft_ll_dispatch_args *args)
{
    const int are_usual =
        is_aligned(args->x) && is_aligned(args->rows) && args->expert_signals == NULL;
    const struct wp_ll_variant wanted = {
        wp_ll_protocol_of(&device->plan), are_usual ? wp_ll_form_of(device) : WP_LL_GENERAL,
        wp_ll_layout_of(&device->plan), WP_LL_SENDS_ROWS, wp_ll_faults_of(&device->masks)};
    if (device->plan.has_nodes)
        return WP_LL_HAS_RELAYS(&device->plan) ? WP_PROGRAM_relayed_low_latency_dispatch
                                               : WP_PROGRAM_internode_low_latency_dispatch;
    return choose_program(WP_PROGRAM_low_latency_dispatch, wanted);
}

/* Programs for usual rows wait for no signals. */
static enum wp_program combine_program(const struct wp_low_latency *device,
                                       const weft_ll_combine_args *args)
{
    const int are_usual = is_aligned(args->x) && is_aligned(args->out) &&
                          args->x_stride_bytes % WP_ALIGNED_BYTES == 0 && args->row_signals == NULL;
    const struct wp_ll_variant wanted = {
        wp_ll_protocol_of(&device->plan), are_usual ? wp_ll_answer_form_of(device) : WP_LL_GENERAL,
        wp_ll_layout_of(&device->plan), wp_ll_sends_of(&device->plan),
        wp_ll_faults_of(&device->masks)};
    if (device->plan.has_nodes)
        return WP_LL_HAS_RELAYS(&device->plan) ? WP_PROGRAM_relayed_low_latency_combine
                                               : WP_PROGRAM_internode_low_latency_combine;
    return choose_program(WP_PROGRAM_low_latency_combine, wanted);
}

/* ---------------------------------------------------------------- launches */

/* For the record of what follows. */
static void tell(weft_ll_phases phases, uint64_t num_bytes)
{
    weft__tell_bytes(num_bytes);
    weft__current_detail.is_phase = phases != WEFT_LL_SEND_AND_RECEIVE;
}

/* Where words tell of experts, a warp for each source and one that waits for all
 * (wp_ll_pack_early). The caller's work waits for this launch. Unlike combine, this launch waits
 * for no such work, so the next launch may start early: work that finds no free SM merely begins
 * later. */
static struct weft__grid dispatch_grid(const weft_ll *ll, const weft_ll_dispatch_args *args)
{
    const weft_comm *comm = ll->ep->comm;
    const int32_t max_warps = weft__machine_of(comm)->max_warps;
    const int32_t wanted = comm->num_ranks < max_warps ? comm->num_ranks + 1 : max_warps;
    struct weft__grid grid = ll->grid;
    grid.awaited_words = args->expert_signals;
    grid.num_awaited_words = ll->device.num_local_experts;
    if (args->expert_signals != NULL && !wp_ll_has_packets(&ll->device.plan) &&
        !wp_ll_has_masks(&ll->device.masks) && grid.num_warps < wanted)
        grid.num_warps = wanted;
    return grid;
}

weft_result weft__ll_dispatch(weft_ll *ll, const weft_ll_dispatch_args *args, weft_stream *stream)
{
    struct wp_low_latency device = device_for(ll, args->waited_ns);
    device.plan.capacity = weft__ll_capacity(ll, args->expert_capacity);
    const struct wp_ll_plan *plan = &device.plan;
    const struct wp_low_latency_dispatch_args program_args = {
        .ll = device,
        .phases = phases_of(args->phases),
        .num_tokens = args->num_tokens,
        .num_tokens_per_block = args->num_tokens / plan->num_blocks,
        .num_blocks_with_more = args->num_tokens % plan->num_blocks,
        .tokens = args->x,
        .token_stride_bytes = (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype),
        .index_type = args->index_type,
        .topk_idx = args->topk_idx,
        .topk_weights = args->topk_weights,
        .num_rows_per_rank = args->num_rows_per_rank,
        .missing_ranks = args->missing_ranks,
        .rows = args->rows,
        .scales = scales_of(plan, args),
        .src_tokens = args->src_tokens,
        .num_rows_per_expert = args->num_rows_per_expert,
        .row_ranges = args->row_ranges,
        .cumulative_rows = args->total_rows_per_expert,
        .expert_signals = args->expert_signals,
    };
    tell(args->phases, (uint64_t)args->num_tokens * program_args.token_stride_bytes);
    WEFT__TRY(weft__exchange_launch(ll->exchange, stream, dispatch_program(&ll->device, args),
                                    dispatch_grid(ll, args), &program_args, sizeof program_args));
    note_dispatch(ll, args);
    return WEFT_OK;
}

weft_result weft__ll_combine(weft_ll *ll, const weft_ll_combine_args *args, weft_stream *stream)
{
    const struct wp_ll_plan *plan = &ll->device.plan;
    struct wp_low_latency device = device_for(ll, args->waited_ns);
    device.num_receivers = ll->combine_receivers;
    device.num_receiver_warps = 0;
    const struct wp_low_latency_combine_args program_args = {
        .ll = device,
        .phases = phases_of(args->phases),
        .use = args->keep ? WP_LL_RESULT_STAYS : WP_LL_RESULT_ENDS,
        .rows = args->x,
        .row_stride_bytes = args->x_stride_bytes > 0
                                ? args->x_stride_bytes
                                : (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype),
        .signals = signals_of(ll, args),
        .late_weights = plan->weights_come_late ? args->topk_weights : NULL,
        .topk_weights = plan->weights_come_late ? NULL : args->topk_weights,
        .out = args->out,
        .missing_ranks = args->missing_ranks,
    };
    struct weft__grid grid = ll->grid;
    tell(args->phases, 0);
    grid.num_warps = ll->combine_warps;
    if (args->row_signals != NULL)
        grid.neighbours = WEFT__AWAITS_OTHER_WORK;
    WEFT__TRY(weft__exchange_launch(ll->exchange, stream, combine_program(&ll->device, args), grid,
                                    &program_args, sizeof program_args));
    note_combine(ll, args->phases, args->keep);
    return WEFT_OK;
}

weft_result weft__ll_release(weft_ll *ll, weft_stream *stream)
{
    const struct wp_low_latency_release_args program_args = {.ll = ll->device,
                                                             .what = WP_LL_RELEASES_RESULT};
    WEFT__TRY(weft__exchange_launch(ll->exchange, stream, WP_PROGRAM_low_latency_release, ll->grid,
                                    &program_args, sizeof program_args));
    ll->issued.rows_answered++;
    ll->issued.rows_ended++;
    return WEFT_OK;
}

weft_result weft__ll_leave(weft_ll *ll)
{
    const weft_comm *comm = ll->ep->comm;
    const struct weft__machine *machine = weft__machine_of(comm);
    const struct wp_low_latency_release_args program_args = {.ll = ll->device,
                                                             .what = WP_LL_LEAVES};
    weft_stream *stream;
    WEFT__TRY(machine->stream_create(ll->ep->comm, &stream));
    weft_result result = weft__exchange_launch(ll->exchange, stream, WP_PROGRAM_low_latency_release,
                                               ll->grid, &program_args, sizeof program_args);
    if (result == WEFT_OK)
        result = machine->stream_synchronize(stream);
    machine->stream_destroy(stream);
    return result;
}

/* ---------------------------------------------------------------- masks */

/* Enough for a word of each rank. */
static const struct weft__grid one_warp = {.num_blocks = 1, .num_warps = 1};

weft_result weft__ll_mask(weft_ll *ll, const int32_t *more, int32_t *mask, weft_stream *stream)
{
    const struct wp_low_latency_mask_args program_args = {
        .ll = ll->device, .more = more, .mask = mask};
    return weft__exchange_launch(ll->exchange, stream, WP_PROGRAM_low_latency_mask, one_warp,
                                 &program_args, sizeof program_args);
}

static weft_result launch_unmask(weft_ll *ll, const int32_t *mask, uint64_t epoch,
                                 weft_stream *stream)
{
    const struct wp_low_latency_unmask_args program_args = {
        .ll = ll->device, .mask = mask, .epoch = epoch};
    return weft__exchange_launch(ll->exchange, stream, WP_PROGRAM_low_latency_unmask, ll->grid,
                                 &program_args, sizeof program_args);
}

/* Ranks meet twice. After the first time no rank sends to a weft_ll within this one. After the
 * second all have renewed the memory, so new ones may be made. */
static weft_result begin_anew(weft_ll *ll, const int32_t *mask, uint64_t epoch, weft_stream *stream)
{
    WEFT__TRY(launch_unmask(ll, mask, 2 * epoch, stream));
    if (ll->heap_pieces.bytes == 0 || ll->num_within > 0)
        return WEFT_OK;
    WEFT__TRY(stream->machine->stream_synchronize(stream));
    WEFT__TRY(weft__ll_renew_pieces(ll));
    return launch_unmask(ll, ll->device.masks.mask, 2 * epoch + 1, stream);
}

/* Drops all that was outstanding. */
weft_result weft__ll_unmask(weft_ll *ll, const int32_t *mask, uint64_t epoch, weft_stream *stream)
{
    WEFT__TRY(begin_anew(ll, mask, epoch, stream));
    ll->issued = (struct weft__ll_issued){.is_in_graphs = ll->issued.is_in_graphs};
    ll->epoch = epoch;
    return WEFT_OK;
}
