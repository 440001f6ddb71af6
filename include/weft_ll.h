/* SPDX-License-Identifier: MIT */
/* Expert parallelism at low latency: a part of weft.h, which includes it and has the rules that
 * hold for all of it. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_LL_H
#define WEFT_LL_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Dispatch and combine of few tokens, as a decode step has them: one launch each, without layout or
 * notify. Ranks exchange nothing before the rows. Every rank has room in its heap for the rows of
 * all others, so the number of tokens has a limit and rows have fixed places. A row goes once to
 * each rank that has one of its experts, whatever the number of these. Everything that the
 * operations keep is in memory of the machine: any sequence of them can be captured into graphs, in
 * any order, and replayed. Ranks may be on several nodes, also of different sizes.
 *
 * - Results. A dispatch makes a result on every rank, which lasts until this rank's combine of it
 *   has been received, or weft_ll_release. A weft_ll has num_results of them at a time; one more is
 *   WEFT_ERROR_INVALID_ARGUMENT. Once an operation of the weft_ll has been captured, the host
 *   cannot count its results any more, and one more is a failure of the communicator instead.
 *   Combine and release take the oldest one. Layers may share a weft_ll or have one each, and so
 *   may batches that overlap each other.
 * - Phases. An operation sends and receives in one launch, or in two: WEFT_LL_SEND, then
 *   WEFT_LL_RECEIVE, on the same stream or another; each rank chooses, except as
 *   WEFT_LL_RELAYED and WEFT_LL_ANSWER_SUMS_WEIGHED_LATE say. Between the phases weft uses no SM,
 *   and no thread except, over several nodes, the network's. Call the receive phase when its data
 *   are needed, with the arguments of receiving alone. It receives the oldest operation that was
 *   sent and not received. While there is one, an operation of its kind in one launch is refused.
 *   The inputs of the send phase may be overwritten when it has finished.
 * - Order. Rows are in (source rank, token) order, sums as each function says. Results are the same
 *   to the bit on all machines, whatever the number of blocks and whenever rows come.
 * - Masks. With WEFT_LL_MASK a rank that is missing when a wait ends is masked by the one that
 *   waited: from then on it is neither sent to nor awaited, its experts add nothing, and it brings
 *   no rows. Each rank masks for itself; missing_ranks of dispatch and combine tells whom. When a
 *   rank goes missing in a dispatch by rank with signals, none of its rows are counted. By expert,
 *   and in packets (weft_ll_carrier), some may have been counted before; their contents are
 *   undefined. In a combine, each token has either all that the rank adds to it or nothing; in
 *   packets each of its elements has. A dead rank is missing at once. Its death does not fail a
 *   communicator that has a weft_ll with masks, but operations that wait for the rank fail. A
 *   masked rank that lives comes back by weft_ll_unmask, unless the network's connection to it was
 *   lost.
 *
 * Semantics of [DeepEP 3] with these limits lifted: any hidden size, any placement and number of
 * experts and ranks, top-k up to 64, a repeatable order, no even number of calls in graphs.
 *
 * Example ll: the step of a layer whose experts return their input.
 *
 *     enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, EXPERTS = 16 };
 *     int32_t rank = weft_comm_rank(comm);
 *     weft_stream *stream;
 *     CHECK(weft_stream_create(comm, &stream));
 *     weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
 *     ep_config.num_experts = EXPERTS;
 *     weft_ep *ep;
 *     CHECK(weft_ep_create(comm, &ep_config, &ep));
 *     weft_ll_config ll_config = WEFT_INIT(weft_ll_config);
 *     ll_config.max_tokens = TOKENS;
 *     ll_config.num_topk = TOPK;
 *     ll_config.hidden = HIDDEN;
 *     ll_config.dtype = WEFT_FP32;
 *     ll_config.layout = WEFT_LL_BY_EXPERT;
 *     weft_ll *ll;
 *     CHECK(weft_ll_create(ep, &ll_config, &ll));
 *     weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
 *     CHECK(weft_ll_query_sizes(ep, &ll_config, &sizes));
 *
 *     float x[TOKENS][HIDDEN], weights[TOKENS][TOPK];
 *     int32_t ids[TOKENS][TOPK];
 *     for (int t = 0; t < TOKENS; t++) {
 *         for (int k = 0; k < TOPK; k++) {
 *             ids[t][k] = (5 * rank + 3 * t + 8 * k) % EXPERTS;
 *             weights[t][k] = 0.5f;
 *         }
 *         for (int h = 0; h < HIDDEN; h++)
 *             x[t][h] = (float)(t + 1);
 *     }
 *     void *tokens, *topk_idx, *topk_weights, *rows, *counts, *out;
 *     CHECK(weft_memory_alloc(comm, sizeof x, &tokens));
 *     CHECK(weft_memory_alloc(comm, sizeof ids, &topk_idx));
 *     CHECK(weft_memory_alloc(comm, sizeof weights, &topk_weights));
 *     CHECK(weft_memory_alloc(comm, sizeof x, &out));
 *     CHECK(weft_memory_alloc(comm, sizes.rows_bytes, &rows)); // [local experts][capacity]
 *     CHECK(weft_memory_alloc(comm, EXPERTS * sizeof(int32_t), &counts));
 *     CHECK(weft_memory_copy(comm, tokens, x, sizeof x));
 *     CHECK(weft_memory_copy(comm, topk_idx, ids, sizeof ids));
 *     CHECK(weft_memory_copy(comm, topk_weights, weights, sizeof weights));
 *
 *     weft_ll_dispatch_args dispatch = WEFT_INIT(weft_ll_dispatch_args);
 *     dispatch.num_tokens = TOKENS;
 *     dispatch.x = tokens;
 *     dispatch.index_type = WEFT_INT32;
 *     dispatch.topk_idx = topk_idx;
 *     dispatch.topk_weights = (const float *)topk_weights;
 *     dispatch.rows = rows;
 *     dispatch.num_rows_per_expert = (int32_t *)counts;
 *     CHECK(weft_ll_dispatch(ll, &dispatch, stream));
 *
 *     weft_ll_combine_args combine = WEFT_INIT(weft_ll_combine_args);
 *     combine.x = rows; // what the experts make of them
 *     combine.out = out;
 *     CHECK(weft_ll_combine(ll, &combine, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, x, out, sizeof x));
 *     EXPECT(x[3][0] == 4); // half of token 3 came back from each of two experts
 *     CHECK(weft_ll_destroy(ll));
 *     CHECK(weft_ep_destroy(ep));
 *     CHECK(weft_memory_free(comm, tokens));
 *     CHECK(weft_memory_free(comm, topk_idx));
 *     CHECK(weft_memory_free(comm, topk_weights));
 *     CHECK(weft_memory_free(comm, rows));
 *     CHECK(weft_memory_free(comm, counts));
 *     CHECK(weft_memory_free(comm, out));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_ll weft_ll;

/* Where rows are once they have been received. */
typedef enum weft_ll_layout {
    /* In the slots that they came to, [R][max_tokens], of which each source has filled the first
     * ones; each row once, with its local experts and weights: weft_ll_query_slots. An expert that
     * a token chooses twice is there twice, each time with its weight. */
    WEFT_LL_BY_RANK = 0,
    /* In memory of the caller, [local experts][expert_capacity], packed from place 0 of each expert
     * on: a copy of the row for every choice. A token that chooses an expert twice has two rows
     * there, each with its weight. What grouped GEMMs want. */
    WEFT_LL_BY_EXPERT = 1
} weft_ll_layout;

/* The rows that combine sends back. */
typedef enum weft_ll_answer {
    /* One row for each token: the sum of what this rank's experts have made of it. */
    WEFT_LL_ANSWER_SUMS = 0,
    /* The row of each expert, so that the owner sums in ascending order of the choices, as [DeepEP
     * 3] does. By expert only. */
    WEFT_LL_ANSWER_ROWS = 1,
    /* As WEFT_LL_ANSWER_SUMS, with the same bits; but the answer to a row stays in the row's slot,
     * where the token's owner reads it, if it is of this node. So there are no slots for answers,
     * and by rank a caller who writes them to the slots (weft_ll_combine_args.x NULL) has nothing
     * copied. The slots are as long as the longer of row and answer. */
    WEFT_LL_ANSWER_IN_SLOTS = 2,
    /* As WEFT_LL_ANSWER_SUMS, with the same bits; but weights are given to combine, for callers who
     * have them only then, as [DeepEP 3]'s: the owner of a token first sends them to the ranks that
     * sum. By expert only, among ranks of one node. WEFT_LL_SEND waits there until the ranks whose
     * rows are answered have begun theirs. */
    WEFT_LL_ANSWER_SUMS_WEIGHED_LATE = 3
} weft_ll_answer;

/* The treatment of a rank that is missing: a rank whose rows, answers or credits do not come in
 * time, or that has died or left. */
typedef enum weft_ll_on_missing {
    WEFT_LL_FAIL = 0, /* the communicator fails, as everywhere */
    WEFT_LL_MASK = 1  /* this rank goes on without it: see "masks" above */
} weft_ll_on_missing;

/* How a row comes to ranks of another node, and their answers back. */
typedef enum weft_ll_route {
    WEFT_LL_STRAIGHT = 0, /* to each of them by itself, and each answers by itself */
    /* [experimental] Once to the node: to its rank with the sender's index in its own node, or,
     * where there are fewer ranks, to one of them in turn. That one relays it to the others, to the
     * same places. It sums their answers, and sends one back; so combine's sums have another order
     * than by the straight route, and not the same bits. With WEFT_LL_ANSWER_ROWS answers go
     * straight, and nothing changes. A rank relays when it receives, in the same operation: so
     * nothing of an operation is received before the ranks that relay it have begun to receive, and
     * all ranks call the phases of all operations in the same order. With WEFT_LL_MASK only
     * WEFT_LL_STRAIGHT is allowed: else a row would depend on a third rank, which may be masked. */
    WEFT_LL_RELAYED = 1
} weft_ll_route;

/* How a rank learns that rows and answers have come. Results are the same to the bit. In packets
 * every 16 bytes of a row carry a mark of their arrival. Packets take more memory
 * (weft_ll_query_sizes). They need one node of R ranks, at most 8; WEFT_LL_ANSWER_SUMS or
 * WEFT_LL_ANSWER_SUMS_WEIGHED_LATE of dtype; rows as they are, or with a scale of 32 bits for 4, 8,
 * 12, ... or 128 elements; and what is said below. L is the most experts that a rank has.
 * weft_ll_create tells what is lacking. */
typedef enum weft_ll_carrier {
    /* On GPUs, where they can be, the first of these that fits:
     *   WEFT_LL_PACKETS        max_tokens <= 16, R * max_tokens <= 64, max_tokens * num_topk <= 256
     *   WEFT_LL_TOLD_PACKETS   of BF16, as it is or as FP8 with a scale for 128 elements:
     *     R >= 3                     R * max_tokens <= 512
     *     R == 2, WEFT_LL_FAIL       max_tokens <= 128, and only of BF16 as it is
     *     R == 2, WEFT_LL_MASK       max_tokens <= 64
     * Else, and on machine cpu, signals. */
    WEFT_LL_AUTO = 0,
    WEFT_LL_SIGNALS = 1, /* a signal behind the rows tells of them */
    /* Each warp finds out by itself where rows go: best for few. num_topk of at most 60. By expert
     * with max_tokens * num_topk and L, each rounded up to an even number, of at most 256
     * together. */
    WEFT_LL_PACKETS = 2,
    /* Ranks tell each other where each row goes, while rows are on their way: best for many.
     * num_topk of at most 63, L of at most 4095, and max_tokens * num_topk of at most 3968; by
     * expert max_tokens * num_topk + 2 * R * L, with L rounded up to an even number. */
    WEFT_LL_TOLD_PACKETS = 3
} weft_ll_carrier;

typedef struct weft_ll_config {
    size_t size;
    int64_t hidden;     /* elements of a row, 1 or more, at most WEFT_MAX_ROW_BYTES */
    int32_t max_tokens; /* most tokens that a rank has in a dispatch: 1..WEFT_LL_MAX_TOKENS */
    int32_t num_topk;   /* 1..max_topk of the weft_ep */
    weft_dtype dtype;   /* of tokens, and of what experts make of them: BF16, FP16 or FP32 */
    weft_ll_layout layout;
    /* By expert: the most rows of an expert. Rows beyond are counted and not written, and are 0 in
     * combine; so counts may exceed the capacity. 0: R * max_tokens. Only tokens that choose an
     * expert twice can exceed that. Then the communicator fails with WEFT_ERROR_CAPACITY on all
     * ranks. The message names the expert, its rank, and a rank that has sent it more than
     * max_tokens rows. Counts and ranges are cut to the rows that are there, so work already in the
     * stream reads no others. */
    int32_t expert_capacity;
    int32_t num_results; /* 1 or 2 results at a time; 0: 2 */
    weft_ll_answer answer;
    /* The type that combine sends: BF16, FP16 or FP32; NONE: dtype. */
    weft_dtype answer_dtype;
    /* Rows are quantised on their way to the experts, as weft_rows_quantise does it, and the
     * experts get them so, with their scales. All zero: they stay as they are. */
    weft_quantisation quantisation;
    int32_t num_blocks; /* of every launch, as weft_ep_config's: the least of all ranks counts */
    /* Each rank as it likes. By expert in packets, if a block has more than R warps, its last R
     * warps only receive what the ranks tell. */
    int32_t num_warps;
    weft_ll_route route; /* between nodes */
    weft_ll_on_missing on_missing;
    /* WEFT_LL_MASK: an awaited rank that is silent for this time is missing; in the first result
     * for three times as long. 0: the communicator's timeout_ms. The same on all ranks, since a
     * rank that waits for others announces this four times in that time. */
    uint32_t missing_ms;
    weft_ll_carrier carrier;
    /* 0: the experts of the weft_ep. Else this many, spread as in a weft_ep without tables. */
    int64_t num_experts;
    /* WEFT_LL_MASK: memory of each rank for every weft_ll that is made within this one, in addition
     * to its own. bytes_within is memory of the heap; network_bytes_within, between nodes, memory
     * of the network. */
    uint64_t bytes_within, network_bytes_within;
    /* WEFT_LL_MASK and WEFT_LL_STRAIGHT: the new weft_ll is made in the memory of this one and
     * shares its masks. Both have the same missing_ms. Each rank takes the next piece of the
     * memory. That needs no other rank, so it works when ranks have died or are masked. All ranks
     * must make the same ones, in the same order; their configurations are not compared.
     * WEFT_ERROR_OUT_OF_MEMORY: no piece is left that is large enough. NULL: all ranks make the
     * weft_ll together. */
    weft_ll *within;
} weft_ll_config;

typedef struct weft_ll_sizes {
    size_t size;
    uint64_t heap_bytes; /* of each rank's heap: with signals, on one node, and without masks nearly
                              all of it num_results * R * max_tokens rows and num_results *
                              max_tokens * num_topk answers; docs/low-latency.md has the others */
    uint64_t memory_bytes; /* this rank's beside it */
    uint64_t rows_bytes;   /* by expert: what weft_ll_dispatch_args.rows needs here; else 0 */
    uint64_t scales_bytes; /* the same of its scales, if they lie by rows */
    int32_t num_local_experts;
    int32_t expert_capacity;  /* as given, or chosen; by rank 0 */
    uint64_t network_bytes;   /* between nodes: memory that the network reaches, which on machine
                                cpu is in the heap, too, on cuda pinned memory of the host */
    weft_ll_carrier carrier;  /* the given carrier, or WEFT_LL_AUTO's choice */
    char carrier_reason[256]; /* why WEFT_LL_AUTO has not chosen a faster carrier; else "" */
} weft_ll_sizes;

/* Local: tells the memory that a weft_ll of this configuration takes, and its carrier. num_blocks 0
 * counts as on this rank. WEFT_ERROR_OUT_OF_MEMORY: config->within has no piece left that is large
 * enough. */
WEFT_API weft_result weft_ll_query_sizes(const weft_ep *ep, const weft_ll_config *config,
                                         weft_ll_sizes *sizes);

/* A job that is only planned. */
typedef struct weft_ll_job {
    size_t size;
    int32_t num_ranks;
    int32_t num_nodes; /* ranks are spread over them evenly; 0: one */
} weft_ll_job;

/* Local: tells the memory that a weft_ll of this configuration would take in that job, on the
 * machine and the device of comm, which may have one rank. The sizes are those of a rank with the
 * most experts. config->num_experts must be given, and config->within must be NULL. */
WEFT_API weft_result weft_ll_plan_sizes(const weft_comm *comm, const weft_ll_job *job,
                                        const weft_ll_config *config, weft_ll_sizes *sizes);

/* Collective, unless config->within is given. Every field except num_blocks and num_warps must be
 * the same on all ranks (WEFT_ERROR_MISMATCH names the first that differs). The weft_ll belongs to
 * config->within, or to ep if that is NULL. */
WEFT_API weft_result weft_ll_create(weft_ep *ep, const weft_ll_config *config, weft_ll **ll);
/* As weft_heap_free. With WEFT_LL_ANSWER_IN_SLOTS it waits until all ranks have received this
 * rank's answers, or destroy their weft_ll as well. The memory of a weft_ll within another is used
 * again after all those within that one are destroyed and weft_ll_unmask is called on it. */
WEFT_API weft_result weft_ll_destroy(weft_ll *ll);

/* Which phases of an operation: 0 is both. */
typedef enum weft_ll_phases {
    WEFT_LL_SEND_AND_RECEIVE = 0,
    WEFT_LL_SEND = 1,
    WEFT_LL_RECEIVE = 2
} weft_ll_phases;

/* Runs an operation, or only checks it. */
typedef enum weft_ll_call {
    WEFT_LL_RUN = 0,
    /* Refuses the arguments that would be refused if this were the next operation of its kind, and
     * does nothing else. Operations that are outstanding do not count. So the arguments of a
     * receive can be checked before anything is sent. */
    WEFT_LL_CHECK = 1
} weft_ll_call;

/* In a call of one phase, fields of the other phase are zero. */
typedef struct weft_ll_dispatch_args {
    size_t size;
    weft_ll_phases phases;
    /* To send. */
    int32_t num_tokens;   /* N, 0..max_tokens, each rank its own */
    const void *x;        /* [N][hidden] of dtype */
    const void *topk_idx; /* [N][num_topk] experts; those outside 0..num_experts-1 are ignored */
    /* [N][num_topk], which the experts' ranks get; NULL: 1, or with
     * WEFT_LL_ANSWER_SUMS_WEIGHED_LATE, that they come later. */
    const float *topk_weights;
    weft_dtype index_type; /* of topk_idx: WEFT_INT32 or WEFT_INT64 */
    weft_ll_call call;
    /* To receive; all but rows are optional. C is expert_capacity, L the number of local
     * experts. */
    int32_t *num_rows_per_rank; /* [R] rows that came from each source, each counted once */
    /* By expert: [L][C][hidden] of quantisation.dtype, or dtype; rows that nobody sent are left as
     * they are. */
    void *rows;
    void *scales; /* by expert: [L][C] of each row's scales, if rows are quantised */
    /* 0: a row's scales lie side by side. Else by columns, as in weft_rows_args, those of each
     * expert behind each other. */
    uint64_t scale_column_bytes;
    int32_t *num_rows_per_expert; /* by expert: [L], also of rows that have been dropped */
    int32_t *src_tokens;          /* by expert: [L][C] index of the token at its source */
    int64_t *row_ranges;          /* by expert: [L][R] rows of each source: their number in the low
                                      32 bits, the first one in the high, as [DeepEP 3] has it */
    int32_t *total_rows_per_expert; /* by expert: [L], to which num_rows_per_expert is added */
    /* WEFT_LL_MASK: [R] 1: masked, so its rows are not there; else 0. */
    int32_t *missing_ranks;
    /* [R], to each of which is added how many ns the operation has waited for that rank, as its
     * first block saw it: next to nothing if what the rank sends was there before. */
    int64_t *waited_ns;
    /* By expert, to receive: rows of each expert that this call's outputs have room for, at most
     * the weft_ll's expert_capacity; 0: that many. Rows beyond are dropped, or a failure, as those
     * of the weft_ll are. */
    int32_t expert_capacity;
    /* By expert, to receive: [L] words in memory of the machine, by which experts may begin before
     * dispatch ends. Each call adds 1 to an expert's word, with a release, when all rows of the
     * expert from all ranks are in `rows`, with their scales and src_tokens, and its
     * num_rows_per_expert and row_ranges are written. An expert without rows gets its 1, too. An
     * expert that lacks rows of a masked rank gets its 1 when the launch ends. A launch that fails,
     * or is never begun because the communicator has failed, sets all words to UINT64_MAX. One
     * without room for all rows adds 1 as others do: num_rows_per_expert and row_ranges have what
     * is there. So nobody who waits with an acquire for a word to reach a value waits in vain,
     * unless this call itself returns an error. Words in the heap can be waited for by
     * weft_rma_wait_until. On cuda a kernel that waits must leave SMs to this launch. */
    uint64_t *expert_signals;
} weft_ll_dispatch_args;

/* Stream operation, collective: sends each token's row to the ranks of its experts. */
WEFT_API weft_result weft_ll_dispatch(weft_ll *ll, const weft_ll_dispatch_args *args,
                                      weft_stream *stream);

/* Where rows are that have been received by rank, on the machine; all pointers are constant as long
 * as the weft_ll exists. The row of index i from source s begins at
 * x[h] + s * source_stride_bytes + i * row_stride_bytes, the other data of the row likewise. */
typedef struct weft_ll_slots {
    size_t size;
    /* [hidden] of quantisation.dtype, or dtype; of half h. x[1] NULL: num_results is 1. */
    const void *x[2];
    const void *scales[2];        /* the row's scales, side by side; NULL: it is not quantised */
    const int32_t *experts[2];    /* [num_topk] the local id of each choice, -1 for others */
    const float *topk_weights[2]; /* [num_topk] 0 where the id is -1 */
    const int32_t *src_token[2];  /* [1] index of the token at its source */
    uint64_t row_stride_bytes;
    uint64_t source_stride_bytes;
    const int32_t *half; /* [1] h of the result that was received last */
} weft_ll_slots;

/* WEFT_ERROR_INVALID_ARGUMENT by expert. */
WEFT_API weft_result weft_ll_query_slots(const weft_ll *ll, weft_ll_slots *slots);

typedef struct weft_ll_combine_args {
    size_t size;
    weft_ll_phases phases;
    /* 1: the result stays, for another combine or weft_ll_release; to send. 0 with
     * WEFT_LL_ANSWER_IN_SLOTS, which ends it. */
    int32_t keep;
    /* To send: what the experts have made of the oldest result's rows, any memory of the machine.
     * By expert [L][C][hidden], of which the rows that came are read. By rank
     * [R][max_tokens][hidden], for each row what this rank's experts made of it, weights applied.
     * By rank with WEFT_LL_ANSWER_IN_SLOTS, if answer_dtype is dtype, it may be NULL: then the
     * caller has written it to the slots, over the rows, and writes nothing more there. */
    const void *x;
    uint64_t x_stride_bytes; /* between rows; 0: they are dense */
    /* To receive. */
    void *out; /* [N][hidden], N of the dispatch */
    /* [N][num_topk], or NULL: 1. To receive with WEFT_LL_ANSWER_ROWS, to send with
     * WEFT_LL_ANSWER_SUMS_WEIGHED_LATE; else NULL. */
    const float *topk_weights;
    /* WEFT_LL_MASK: [R] 1: masked, so that it adds nothing; else 0. */
    int32_t *missing_ranks;
    int64_t *waited_ns;      /* as in weft_ll_dispatch_args; optional */
    int32_t expert_capacity; /* by expert, to send: as in the dispatch */
    weft_ll_call call;
    /* By expert, to send: experts may still work on x when combine begins, and raise words when
     * they have written rows. NULL: all rows are there. Else [L][W] words in memory of the machine,
     * W = ceil(C / rows_per_signal): word w of an expert is for its rows from w * rows_per_signal
     * on. Combine reads a row when its word is signal_value or more. The caller sets words to less
     * before the call. Whoever writes rows then raises their word with a release, from another
     * stream or thread, in any order. Combine does not wait for words without rows. A word that
     * does not come within timeout_ms fails the communicator; the error names the expert and its
     * rank. On cuda the launch must leave SMs to the experts: num_blocks must be less than the
     * GPU's number of SMs. */
    const uint32_t *row_signals;
    uint32_t signal_value;   /* 1 or more */
    int32_t rows_per_signal; /* 0: an expert has one word, for all its rows */
} weft_ll_combine_args;

/* Stream operation, collective. Sums are made in fp32 without fused operations, begin with +0, and
 * are rounded once at their end (nearest even; every NaN becomes the positive quiet NaN with all
 * mantissa bits set). With all answers but WEFT_LL_ANSWER_ROWS each rank sums weight * row over its
 * experts in ascending order of the choices, rounds to answer_dtype, and sends; out = the sum of
 * what comes, in ascending rank order. With WEFT_LL_ANSWER_ROWS each rank sends the rows in
 * answer_dtype; out = the sum of weight * row in ascending order of the choices.
 *
 * Over several nodes with WEFT_LL_RELAYED, unless rows are answered, sums are made node by node, as
 * weft_ep_combine makes them: on each node, the token's own among them, what its ranks answer is
 * added in ascending rank order, from +0, in fp32, and rounded to answer_dtype, once more; out =
 * these sums in ascending order of the nodes. So results depend on which ranks are of one node, but
 * not on whose token it is. */
WEFT_API weft_result weft_ll_combine(weft_ll *ll, const weft_ll_combine_args *args,
                                     weft_stream *stream);

/* Stream operation, collective: ends the oldest result, which has been received and, if it was
 * combined, kept. */
WEFT_API weft_result weft_ll_release(weft_ll *ll, weft_stream *stream);

/* The masks of a weft_ll with WEFT_LL_MASK: [R], in memory of the machine. All three are stream
 * operations.
 *
 * Masks the ranks whose entry is not 0, beside those that are masked; the own entry does not count.
 * Local. The entries are read when the operation runs, so that a captured one takes what is there
 * then. */
WEFT_API weft_result weft_ll_mask(weft_ll *ll, const int32_t *mask, weft_stream *stream);
/* Writes 1 for each rank that is masked, and 0 for others. Local. */
WEFT_API weft_result weft_ll_query_mask(weft_ll *ll, int32_t *mask, weft_stream *stream);
/* Lets ranks come back. Collective among the ranks whose entry is 0, which all give the same mask
 * and the same epoch; epochs grow from call to call, 1 or more, so that nobody is taken for one who
 * called before. What each of them has sent and not received, and its results, are dropped: they
 * begin anew, as with a new weft_ll. A rank that does not take part, or is silent for two
 * deadlines, is masked. Not in graphs.
 *
 * Each weft_ll within this one begins anew by a call of its own, after this one's call, in the same
 * order on all ranks. If all of them have been destroyed before, their memory is as new when the
 * call returns: the ranks that take part then make the same ones again, even if some ranks were
 * masked when earlier ones were made. From then on a masked rank that lives and does not take part
 * must send nothing. */
WEFT_API weft_result weft_ll_unmask(weft_ll *ll, const int32_t *mask, uint64_t epoch,
                                    weft_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
