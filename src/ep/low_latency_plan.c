/* SPDX-License-Identifier: MIT */
/* The plan of programs for a weft_ll's configuration. */
#include "ep/low_latency.h"
#include "programs/low_latency/ll_usual.h"

static uint64_t aligned(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

/* Elements and what goes with them begin where whole packets do. */
static struct wp_ll_slot plan_slot(const struct wp_ll_plan *plan)
{
    enum { PART = 16, SLOT = 128 };
    const uint64_t choices_bytes = aligned((uint64_t)plan->num_topk * sizeof(int32_t), PART);
    struct wp_ll_slot slot = {.scales_offset = aligned(plan->row_bytes, PART)};
    slot.token_offset = slot.scales_offset + aligned(plan->scales_bytes, PART);
    if (plan->answers_stay && slot.token_offset < plan->answer_bytes)
        slot.token_offset = plan->answer_bytes;
    slot.answer_offset = slot.token_offset + sizeof(int32_t);
    slot.experts_offset = slot.token_offset + PART;
    slot.weights_offset = slot.experts_offset + choices_bytes;
    slot.order_offset = slot.weights_offset + choices_bytes;
    slot.bytes = aligned(slot.order_offset + (plan->is_by_expert ? choices_bytes : 0), SLOT);
    return slot;
}

static struct wp_quantisation quantisation_of(const weft_ll_config *config)
{
    const struct wp_quantisation none = {
        .src_dtype = config->dtype, .dst_dtype = config->dtype, .group_elements = 1};
    const struct wp_quantisation quantisation = {
        .src_dtype = config->dtype,
        .dst_dtype = config->quantisation.dtype,
        .scale = (enum wp_scale_kind)config->quantisation.scale,
        .group_elements = config->quantisation.group_elements > 0
                              ? config->quantisation.group_elements
                              : (int32_t)config->hidden};
    return config->quantisation.dtype == WEFT_DTYPE_NONE ? none : quantisation;
}

/* The parts of a row, side by side. */
static uint64_t scales_bytes(const weft_ll_config *config)
{
    const struct wp_quantisation quantisation = quantisation_of(config);
    const uint64_t num_groups = (uint64_t)(config->hidden / quantisation.group_elements);
    if (config->quantisation.dtype == WEFT_DTYPE_NONE)
        return 0;
    return num_groups * (config->quantisation.scale == WEFT_SCALE_UE8M0 ? 1 : sizeof(float));
}

/* Whether warps can quantise parts of a row: each writes words of four exponent bytes. */
static int parts_are_whole_words(const struct wp_ll_plan *plan)
{
    enum { GROUPS_OF_WORD = 4 };
    const uint64_t word_bytes =
        (uint64_t)plan->quantisation.group_elements * GROUPS_OF_WORD * wp_dtype_bytes(plan->dtype);
    return !wp_ll_is_quantised(plan) || WP_STEP_BYTES % word_bytes == 0;
}

static int32_t chosen_capacity(const weft_ep *ep, const weft_ll_config *config)
{
    if (config->layout != WEFT_LL_BY_EXPERT)
        return 0;
    return config->expert_capacity > 0 ? config->expert_capacity
                                       : ep->comm->num_ranks * config->max_tokens;
}

static int32_t rounded_up_log2(int32_t number)
{
    int32_t log2 = 0;
    while (1 << log2 < number)
        log2++;
    return log2;
}

/* That a token goes to. */
static int32_t most_ranks(const struct wp_ll_plan *plan, int32_t num_ranks)
{
    return plan->num_topk < num_ranks ? plan->num_topk : num_ranks;
}

/* A host's network soon reads what it sends; and so do other ranks what still is in the cache
 * then, of all that those of a node send each other in a step. docs/measurements.md has what
 * this gives. */
static enum wp_reuse reuse_of(const weft_comm *comm, const struct wp_ll_plan *plan)
{
    const uint64_t cache_bytes = UINT64_C(16) << 20;
    const uint64_t num_rows = (uint64_t)comm->num_ranks * (uint64_t)plan->max_tokens *
                              (uint64_t)most_ranks(plan, comm->num_ranks);
    return plan->has_nodes || num_rows * plan->slot.bytes <= cache_bytes ? WP_READ_SOON
                                                                         : WP_READ_LATER;
}

/* ---------------------------------------------------------------- packets */

/* As many elements of quantised rows as have scales for one packet. */
static int32_t part_elements(const struct wp_ll_plan *plan)
{
    const int32_t num_groups = WP_LL_PART_SCALES_BYTES / (int32_t)sizeof(float);
    return wp_ll_is_quantised(plan) ? num_groups * plan->quantisation.group_elements
                                    : WP_LL_PART_BYTES >> plan->element_bytes_log2;
}

static struct wp_ll_parts parts_of(const weft_comm *comm, const struct wp_ll_plan *plan,
                                   int32_t elements, int32_t num_besides)
{
    const int32_t num = ((int32_t)plan->hidden - 1) / elements + 1;
    return (struct wp_ll_parts){num, elements, num + num_besides,
                                wp_reciprocal((uint32_t)(num + num_besides)),
                                wp_reciprocal((uint32_t)comm->num_ranks)};
}

/* Work items of a row's scales. */
static int32_t num_scale_units(const struct wp_ll_plan *plan)
{
    const uint64_t scales_bytes = plan->slot.token_offset - plan->slot.scales_offset;
    return (int32_t)((scales_bytes + WP_LL_PART_BYTES - 1) / WP_LL_PART_BYTES);
}

static struct wp_ll_parts row_parts(const weft_comm *comm, const struct wp_ll_plan *plan)
{
    return parts_of(comm, plan, part_elements(plan), 1 + num_scale_units(plan));
}

static struct wp_ll_parts answer_parts(const weft_comm *comm, const struct wp_ll_plan *plan)
{
    return parts_of(comm, plan, WP_LL_PART_BYTES >> plan->element_bytes_log2, 0);
}

/* If ranks are told: quantised, with scales for whole packets. */
static int32_t told_part_elements(const struct wp_ll_plan *plan)
{
    const int32_t least = wp_ll_is_quantised(plan) ? part_elements(plan) : 1;
    return WP_LL_TOLD_PART_ELEMENTS < least ? least : WP_LL_TOLD_PART_ELEMENTS / least * least;
}

static void plan_packets(const weft_comm *comm, struct wp_ll_plan *plan)
{
    plan->row_parts = row_parts(comm, plan);
    plan->taken_parts = plan->row_parts;
    plan->answer_parts = answer_parts(comm, plan);
    plan->sum_parts = plan->answer_parts;
}

static void plan_told(const weft_comm *comm, struct wp_ll_plan *plan)
{
    plan->is_told = 1;
    plan->row_parts = parts_of(comm, plan, told_part_elements(plan), 0);
    plan->taken_parts =
        parts_of(comm, plan, WP_LL_TAKEN_PART_BYTES >> plan->sent_element_bytes_log2,
                 plan->is_by_expert ? num_scale_units(plan) : 0);
    plan->answer_parts = parts_of(comm, plan, WP_LL_TOLD_PART_ELEMENTS, 0);
    plan->sum_parts = answer_parts(comm, plan);
}

/* Whether numbers of units can be divided by reciprocals, by those of a row and by ranks. */
static int can_count_units(const weft_comm *comm, const struct wp_ll_plan *plan)
{
    const int64_t rows = row_parts(comm, plan).num_units, answers = answer_parts(comm, plan).num;
    const int64_t of_row = rows > answers ? rows : answers, num_ranks = comm->num_ranks;
    const int64_t divisor = of_row > num_ranks ? of_row : num_ranks;
    return of_row <= INT32_MAX / divisor / num_ranks / (plan->max_tokens + 1);
}

/* As its error says. */
WP_STATIC_ASSERT(WP_WARP_SHARED_BYTES / sizeof(uint16_t) == 256, "choices, and counts of experts");

static const char *lacks_any_packets(const weft_comm *comm, const weft_ll_config *config,
                                     const struct wp_ll_plan *plan)
{
    enum { PACKET_BYTES = 16 }; /* on any machine at most: parts have none in common */
    if (plan->has_nodes || comm->num_ranks > WP_LL_NEAR_RANKS)
        return "one node of at most 8 ranks";
    if (config->answer != WEFT_LL_ANSWER_SUMS && !plan->weights_come_late)
        return "answer WEFT_LL_ANSWER_SUMS or WEFT_LL_ANSWER_SUMS_WEIGHED_LATE";
    if (plan->answer_dtype != plan->dtype)
        return "answer_dtype WEFT_DTYPE_NONE or dtype";
    if (wp_ll_is_quantised(plan) && config->quantisation.scale == WEFT_SCALE_UE8M0)
        return "scales of 32 bits";
    if ((uint64_t)part_elements(plan) << plan->sent_element_bytes_log2 > WP_LL_PART_BYTES)
        return "group_elements of at most 128";
    if (((uint64_t)part_elements(plan) << plan->sent_element_bytes_log2) % PACKET_BYTES != 0)
        return "group_elements that are a multiple of 4";
    return can_count_units(comm, plan) ? NULL : "a smaller hidden or max_tokens";
}

static const char *lacks_packets(const weft_comm *comm, const weft_ll_config *config,
                                 const struct wp_ll_plan *plan)
{
    const uint64_t choices_bytes = plan->slot.order_offset - plan->slot.token_offset;
    const uint64_t chosen_bytes = (uint64_t)wp_ll_num_chosen_words(plan) * sizeof(int32_t);
    if (choices_bytes > WP_WARP_SHARED_BYTES)
        return "num_topk of at most 60";
    if (plan->is_by_expert && chosen_bytes > WP_WARP_SHARED_BYTES)
        return "by expert max_tokens * num_topk and experts of a rank, each rounded up to an even "
               "number, of at most 256 together";
    return lacks_any_packets(comm, config, plan);
}

WP_STATIC_ASSERT((WP_BLOCK_SHARED_BYTES - WP_BLOCK_WORDS_BYTES) / sizeof(uint16_t) == 3968,
                 "as the errors say");

/* Memory of a warp has what it tells of a token; memory of a block, by expert, counts of all ranks,
 * as they are heard and as they are told, and the places of all choices. */
static const char *lacks_told_packets(const weft_comm *comm, const weft_ll_config *config,
                                      const struct wp_ll_plan *plan)
{
    const uint64_t places_bytes =
        (uint64_t)plan->max_tokens * (uint64_t)plan->num_topk * sizeof(uint16_t);
    const uint64_t num_counts = 2 * (uint64_t)comm->num_ranks * (uint64_t)wp_ll_num_pairs(plan);
    const uint64_t counts_bytes = num_counts * sizeof(uint32_t);
    if ((uint64_t)wp_ll_num_told_words(plan) * sizeof(uint32_t) > WP_WARP_SHARED_BYTES)
        return "num_topk of at most 63";
    if (plan->max_local_experts >= 1 << WP_LL_PLACE_EXPERT_BITS)
        return "at most 4095 experts of a rank";
    if (WP_BLOCK_WORDS_BYTES + counts_bytes + places_bytes > WP_BLOCK_SHARED_BYTES)
        return "max_tokens * num_topk, and by expert 2 * ranks * experts of a rank added, of at "
               "most 3968";
    return lacks_any_packets(comm, config, plan);
}

/* Returns the condition that told packets lack to be faster than signals, or NULL. The limits are
 * from docs/measurements.md: steps of 1 to 256 tokens by each carrier, among 4 ranks and 2. Rows
 * without a variant are slow in told packets. FP8 is slow among two ranks, except with masks. */
static const char *lacks_speed(int32_t num_ranks, const weft_ll_config *config,
                               const struct wp_ll_plan *plan)
{
    enum { PAIR_TOKENS = 128, MASKED_PAIR_TOKENS = 64, MANY_ROWS = 512 };
    const struct wp_low_latency ll = {
        .plan = *plan, .masks = {.absent_after_ms = config->on_missing == WEFT_LL_MASK}};
    const enum wp_ll_form form = wp_ll_form_of(&ll);
    const int are_alone = num_ranks == 2 && config->on_missing == WEFT_LL_FAIL;
    if (num_ranks == 1)
        return "other ranks";
    if (form == WP_LL_GENERAL)
        return "tokens of BF16, rows as they are or of FP8 with a scale for 128 elements, a hidden "
               "that is a multiple of 16, and num_topk of at most 32";
    if (are_alone && form != WP_LL_BF16)
        return "rows as they are, between two ranks";
    if (are_alone && plan->max_tokens > PAIR_TOKENS)
        return "max_tokens of at most 128, between two ranks";
    if (num_ranks == 2 && !are_alone && plan->max_tokens > MASKED_PAIR_TOKENS)
        return "max_tokens of at most 64, between two ranks with masks";
    return num_ranks == 2 || plan->max_tokens <= MANY_ROWS / num_ranks
               ? NULL
               : "at most 512 tokens of all ranks together";
}

/* Cores send and take packets of 8 bytes, one by one: on machine cpu a step of 4 ranks takes two to
 * five times as long in packets (1 to 8 tokens, 2026-11-26). What counts on GPUs is how many rows
 * may come. */
static struct weft__ll_carrier best_carrier(const weft_comm *comm, const weft_ll_config *config,
                                            const struct wp_ll_plan *plan)
{
    enum { FEW_TOKENS = 16, FEW_ROWS = 64, FEW_CHOICES = 256 };
    const int are_few = plan->max_tokens <= FEW_TOKENS &&
                        plan->max_tokens <= FEW_ROWS / comm->num_ranks &&
                        plan->max_tokens * plan->num_topk <= FEW_CHOICES;
    struct weft__ll_carrier best = {
        WEFT_LL_SIGNALS, are_few ? WEFT_LL_PACKETS : WEFT_LL_TOLD_PACKETS, "machine cuda"};
    if (weft__machine_of(comm)->kind != WEFT_MACHINE_CUDA)
        return best;
    const char *few_lack = lacks_packets(comm, config, plan);
    if (are_few && few_lack == NULL)
        return (struct weft__ll_carrier){WEFT_LL_PACKETS, WEFT_LL_PACKETS, NULL};
    best.lacks = lacks_told_packets(comm, config, plan);
    if (best.lacks == NULL)
        best.lacks = lacks_speed(comm->num_ranks, config, plan);
    if (best.lacks == NULL)
        best.carrier = WEFT_LL_TOLD_PACKETS;
    if (are_few)
        best.lacks = few_lack;
    return best;
}

static struct weft__ll_carrier choose_carrier(const weft_comm *comm, const weft_ll_config *config,
                                              const struct wp_ll_plan *plan)
{
    struct weft__ll_carrier given = {config->carrier, config->carrier, NULL};
    if (config->carrier == WEFT_LL_AUTO)
        return best_carrier(comm, config, plan);
    if (config->carrier == WEFT_LL_PACKETS)
        given.lacks = lacks_packets(comm, config, plan);
    if (config->carrier == WEFT_LL_TOLD_PACKETS)
        given.lacks = lacks_told_packets(comm, config, plan);
    return given;
}

/* Whatever the carrier. */
static struct wp_ll_plan plan_rows(const weft_ep *ep, const weft_ll_config *config)
{
    const weft_dtype answer_dtype =
        config->answer_dtype == WEFT_DTYPE_NONE ? config->dtype : config->answer_dtype;
    struct wp_ll_plan plan = {
        .max_tokens = config->max_tokens,
        .num_topk = config->num_topk,
        .num_buffers = config->num_results == 0 ? WP_NUM_BUFFERS : config->num_results,
        .has_nodes = ep->comm->topology.num_nodes > 1,
        .max_local_experts = weft__placement_max_local(&ep->placement),
        .is_by_expert = config->layout == WEFT_LL_BY_EXPERT,
        .answers_are_rows = config->answer == WEFT_LL_ANSWER_ROWS,
        .answers_stay = config->answer == WEFT_LL_ANSWER_IN_SLOTS,
        .weights_come_late = config->answer == WEFT_LL_ANSWER_SUMS_WEIGHED_LATE,
        .capacity = chosen_capacity(ep, config),
        .drops_rows = config->expert_capacity > 0,
        .hidden = config->hidden,
        .dtype = config->dtype,
        .answer_dtype = answer_dtype,
        .quantisation = quantisation_of(config),
    };
    plan.topk_reciprocal = wp_reciprocal((uint32_t)plan.num_topk);
    plan.num_topk_log2 = rounded_up_log2(plan.num_topk);
    plan.element_bytes_log2 = rounded_up_log2((int32_t)wp_dtype_bytes(plan.dtype));
    plan.sent_element_bytes_log2 =
        rounded_up_log2((int32_t)wp_dtype_bytes(plan.quantisation.dst_dtype));
    plan.row_bytes = (uint64_t)config->hidden * wp_dtype_bytes(plan.quantisation.dst_dtype);
    plan.scales_bytes = scales_bytes(config);
    plan.max_row_parts = parts_are_whole_words(&plan) ? INT32_MAX : 1;
    plan.answer_bytes = aligned(wp_ll_answer_bytes(&plan, plan.hidden), 16);
    plan.slot = plan_slot(&plan);
    plan.reuse = reuse_of(ep->comm, &plan);
    return plan;
}

struct wp_ll_plan weft__ll_plan(const weft_ep *ep, const weft_ll_config *config)
{
    struct wp_ll_plan plan = plan_rows(ep, config);
    const weft_ll_carrier carrier = choose_carrier(ep->comm, config, &plan).carrier;
    if (carrier == WEFT_LL_PACKETS)
        plan_packets(ep->comm, &plan);
    if (carrier == WEFT_LL_TOLD_PACKETS)
        plan_told(ep->comm, &plan);
    return plan;
}

struct weft__ll_carrier weft__ll_choose_carrier(const weft_ep *ep, const weft_ll_config *config)
{
    const struct wp_ll_plan plan = plan_rows(ep, config);
    return choose_carrier(ep->comm, config, &plan);
}

static struct wp_ll_answer_slots answer_slots(const weft_comm *comm, const weft_ll_config *config,
                                              const struct wp_ll_plan *plan)
{
    const int32_t num_places = plan->num_blocks * plan->block_tokens, num_topk = plan->num_topk;
    const int32_t each = plan->answers_are_rows ? num_topk : 1; /* of a rank */
    const int32_t all = plan->answers_are_rows ? num_topk : most_ranks(plan, comm->num_ranks);
    const struct wp_ll_answer_slots shared = {num_places * num_topk, 0, num_topk, 1, 0};
    const struct wp_ll_answer_slots apart = {comm->num_ranks * num_places * each, num_places * each,
                                             each, plan->answers_are_rows, 0};
    const struct wp_ll_answer_slots shared_by_nodes = {num_places * all, 0, 0, 0,
                                                       plan->block_tokens * all};
    const struct wp_ll_answer_slots apart_by_nodes = {
        comm->num_ranks * num_places * each, num_places * each, 0, 0, plan->block_tokens * each};
    if (plan->answers_stay && !plan->has_nodes)
        return (struct wp_ll_answer_slots){0};
    if (config->on_missing == WEFT_LL_MASK)
        return plan->has_nodes ? apart_by_nodes : apart;
    return plan->has_nodes ? shared_by_nodes : shared;
}

void weft__ll_plan_blocks(const weft_comm *comm, const weft_ll_config *config, int32_t num_blocks,
                          struct wp_ll_plan *plan)
{
    plan->num_blocks = num_blocks;
    plan->block_tokens = (plan->max_tokens + num_blocks - 1) / num_blocks;
    plan->answer_slots = answer_slots(comm, config, plan);
    plan->message = weft__ll_plan_message(comm, config, plan);
}

/* If the tokens of all go to as many ranks as they can: then a warp has one part of one row at a
 * time. */
struct wp_ll_share weft__ll_share_of_sources(const struct wp_ll_plan *plan, int32_t num_ranks,
                                             int32_t num_warps)
{
    return wp_ll_share_rows(num_warps, plan->block_tokens * most_ranks(plan, num_ranks));
}
