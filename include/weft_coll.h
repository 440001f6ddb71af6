/* SPDX-License-Identifier: MIT */
/* Collectives: a part of weft.h, which includes it and has the rules that hold for all of it. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_COLL_H
#define WEFT_COLL_H

#ifdef __cplusplus
extern "C" {
#endif

/* Buffers and the choice of algorithms for the collective operations of a communicator. It may have
 * any number of ranks, on any number of nodes of different sizes. For operations that overlap each
 * other make several. */
typedef struct weft_coll weft_coll;

typedef enum weft_collective {
    WEFT_ALL_REDUCE = 0,
    WEFT_REDUCE_SCATTER = 1,
    WEFT_ALL_GATHER = 2,
    WEFT_ALL_TO_ALL = 3,
    WEFT_BROADCAST = 4,
    WEFT_REDUCE = 5,
    WEFT_GATHER = 6,
    WEFT_SCATTER = 7
} weft_collective;

/* How they are done. None of this changes a bit of any result, except sums by TREE, which nothing
 * but a pin chooses [experimental]. Ranks of one node, up to WEFT_COLL_MAX_RANKS: any but RAILS and
 * TREE. More ranks of one node: RAILS. Several nodes: RAILS and TREE. */
typedef enum weft_algorithm {
    WEFT_ALGORITHM_AUTO = 0, /* by size: the choice of WEFT_TUNING, else of the library */
    /* Every rank sends its data in packets that carry their own arrival mark: least latency. For
     * messages up to packet_bytes. All collectives. */
    WEFT_ALGORITHM_ONESHOT = 1,
    /* The same in two steps: each rank reduces a part, then sends the result. ALL_REDUCE. */
    WEFT_ALGORITHM_TWOSHOT_PACKETS = 2,
    /* Reads all inputs where they are. ALL_REDUCE, REDUCE_SCATTER; REDUCE, by the root alone. */
    WEFT_ALGORITHM_ONESHOT_PULL = 3,
    /* Each rank reads a part of all inputs and writes the result to all outputs: ALL_REDUCE; to the
     * root's: REDUCE. */
    WEFT_ALGORITHM_TWOSHOT = 4,
    /* Writes to the outputs. ALL_GATHER, ALL_TO_ALL, BROADCAST, GATHER, SCATTER. */
    WEFT_ALGORITHM_PUSH = 5,
    /* Over several nodes: reads and writes inputs and outputs in the node, and sends pieces to the
     * rank of the next node that has the same index there, which passes them on (docs/network.md).
     * All collectives; weft_coll_all_to_all_v from rank to rank. If calls differ between two nodes,
     * all ranks of both get the error in this operation. With three nodes or more, a rank of
     * another node that has done its part may get the error only in its next operation. */
    WEFT_ALGORITHM_RAILS = 6,
    /* The root writes a part to each rank, piece by piece, which passes it on to all others: the
     * root sends the row once. BROADCAST. */
    WEFT_ALGORITHM_RELAY = 7,
    /* Over several nodes: up and down a binary tree of the nodes, for small messages. ALL_REDUCE,
     * BROADCAST, REDUCE: among D nodes in 1 + 2 log2 D hops at most, where an all-reduce by RAILS
     * takes 2 (D - 1). A broadcast takes fewer than 2 log2 D in place of D - 1. AUTO chooses TREE
     * for broadcasts alone, over 8 nodes or more, up to 32 KiB, or up to the size that
     * weft_coll_explain's model finds from the nodes' distance. Each node adds in this order: the
     * sum of its first child, the sum of its own ranks (as by RAILS, from rail to rail), and the
     * sum of its second child; each is rounded to dtype. Node 0 is the root. Among the nodes
     * between two nodes a and b, the root is a + the largest power of two that is less than b - a;
     * its children are the roots of the nodes between a and it, and between it and b. So sums are
     * in the order of nodes. The same bits on all ranks. */
    WEFT_ALGORITHM_TREE = 8
} weft_algorithm;

/* Pins the algorithm of one collective. */
typedef struct weft_coll_choice {
    size_t size;
    weft_collective collective;
    weft_algorithm algorithm;
} weft_coll_choice;

typedef struct weft_coll_config {
    size_t size;
    /* Bytes that a rank can have under way to each other rank in packets; the heap memory for them
     * is about 3 (on cpu 4) times this per rank. 0: 16 MiB on cuda, 512 KiB on cpu, over the
     * ranks. */
    uint64_t packet_bytes;
    /* Heap memory per rank for data that peers cannot reach; larger data goes through it piece by
     * piece. 0: 8 MiB. By RAILS inputs and outputs have so much each. Sends and receives go through
     * it, too: it has at least 32 bytes for each rank and channel. */
    uint64_t staging_bytes;
    /* [num_choices], copied, at most one per collective; the others are AUTO. An operation that the
     * pinned algorithm cannot do is WEFT_ERROR_UNSUPPORTED. */
    const weft_coll_choice *choices;
    int32_t num_choices;
    int32_t num_blocks; /* as weft_ep_config's, at most 1024 */
    int32_t num_warps;
    int32_t reserved; /* 0 */
    /* Channels to and from each other rank, slots of each channel, and bytes of a slot. 0 means:
     * - rings to the next node and from the previous one, over several nodes: 1 channel, on cuda 4;
     *   8 slots (1 is as 2); 128 KiB and a header of 64 bytes.
     * - weft_coll_send and weft_coll_recv, whose slots are the staging block's: 1 channel, on cuda
     *   64 over the ranks, 32 at most; 4 slots, 255 at most; 64 KiB, on cuda 32 KiB. If many ranks
     *   send at the same time, the block's slots are divided among them; if there are more channels
     *   and ranks than slots, slots are shorter. */
    uint64_t staging_slot_bytes;
    int32_t num_channels;
    int32_t num_staging_slots;
} weft_coll_config;

/* Collective; config (may be NULL) must be the same on all ranks, except num_warps
 * (WEFT_ERROR_MISMATCH names a rank that differs). Needs the memory of all ranks of the node to be
 * mapped: WEFT_ERROR_UNSUPPORTED names one that is not, on every rank, also if comm has failed. If
 * the environment of rank 0 has WEFT_TUNING, rank 0 reads that file, a table of algorithms, blocks
 * and warps by size (weft(1)), for all; WEFT_ERROR_INVALID_ARGUMENT names, on all ranks, file and
 * line of what is wrong in it. What config says goes before what the table says. */
WEFT_API weft_result weft_coll_create(weft_comm *comm, const weft_coll_config *config,
                                      weft_coll **coll);
/* As weft_heap_free. What all ranks have mapped for a weft_coll_record that is not destroyed yet
 * stays mapped until weft_comm_destroy. */
WEFT_API weft_result weft_coll_destroy(weft_coll *coll);

/*
 * The operations: stream operations, collective. When one has finished on this rank, its output is
 * complete and its input may be overwritten. Any count is legal, 0 included; it is the same on all
 * ranks. dtype is any of WEFT_INT32 to WEFT_FP8_E4M3. Pointers may have any alignment (16 bytes is
 * fastest). Inputs and outputs are any memory that the machine accesses; in the heap, or
 * registered, they are reached directly; others, if large, are staged by a copy. Each rank may have
 * them where it likes, but if they are more than staging_bytes, either all ranks have them in such
 * memory or none (WEFT_ERROR_MISMATCH). Input and output overlap in the in-place form that each
 * function names. An array that a function says is ignored may be NULL.
 *
 * If calls do not fit together (operation, count, dtype, op, root), all ranks get
 * WEFT_ERROR_MISMATCH, whose message names two that differ: at once, or, where a rank's own part
 * was done before another one found it, by its next operation. The outputs are undefined then.
 *
 * Reductions go in ascending rank order, beginning with rank 0's element: BF16, FP16, FP32 and FP8
 * in fp32, FP64 in fp64, rounded once to nearest even; integers in their own type, wrapping around.
 * By RAILS each node first reduces the rows of its ranks so (for AVG it sums them), and rounds
 * after each 32 ranks and after the last. Then each other node's result is added in turn to that of
 * the first node, and each sum is rounded. The first node is node 0 in an all-reduce. In a
 * reduce-scatter or reduce it is the one after the node that gets the row. Nodes are numbered by
 * their first ranks. So bits depend on which ranks are on one node, and on nothing else.
 *
 * AVG is the sum divided by R, before rounding. It refuses integers: their sum may wrap. MAX and
 * MIN are those of IEEE 754-2019: NaN if there is one, -0 less than +0. Every NaN becomes the
 * positive quiet NaN with all mantissa bits set; FP8 saturates at 448. PREMUL_SUM first makes 0 +
 * factor * input of each rank, multiplied in fp32 and rounded once to dtype. Then it is the SUM of
 * these, with the bits that SUM would give if they were the inputs. So results are the same to the
 * bit on all ranks, whatever the algorithm (but TREE), the machine, the number of blocks, and the
 * elements around.
 * [vLLM custom all-reduce 4, without its limits; names of NCCL]
 *
 * Example coll: sums a vector over all ranks, in place.
 *
 *     weft_coll *coll;
 *     weft_stream *stream;
 *     void *vector;
 *     CHECK(weft_coll_create(comm, NULL, &coll));
 *     CHECK(weft_stream_create(comm, &stream));
 *     CHECK(weft_memory_alloc(comm, 3 * sizeof(float), &vector));
 *     float values[3] = {1, 2, (float)weft_comm_rank(comm)};
 *     CHECK(weft_memory_copy(comm, vector, values, sizeof values));
 *
 *     weft_coll_args args = WEFT_INIT(weft_coll_args);
 *     args.send = vector;
 *     args.recv = vector;
 *     args.count = 3;
 *     args.dtype = WEFT_FP32;
 *     args.op = WEFT_SUM;
 *     CHECK(weft_coll_all_reduce(coll, &args, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, values, vector, sizeof values));
 *     EXPECT(values[1] == 2 * (float)weft_comm_num_ranks(comm));
 *     CHECK(weft_memory_free(comm, vector));
 *     CHECK(weft_stream_destroy(stream));
 *     CHECK(weft_coll_destroy(coll));
 */
typedef struct weft_coll_args {
    size_t size;
    const void *send;
    void *recv;
    int64_t count; /* elements of one row, 0..WEFT_COLL_MAX_BYTES of them */
    weft_dtype dtype;
    weft_reduce_op op; /* all_reduce, reduce_scatter, reduce; others: 0 */
    int32_t root;      /* broadcast, reduce, gather, scatter; others: 0 */
    float factor;      /* PREMUL_SUM; others: 0. Need not be the same on all ranks */
    /* PREMUL_SUM: if not NULL, the operation reads the factor from here when it runs (each time, in
     * a graph), and `factor` is 0. Memory that the machine accesses, but not in recv. */
    const float *factor_at;
} weft_coll_args;

/* recv[count] = the reduction of all ranks' send[count], element by element. In place: recv is
 * send. */
WEFT_API weft_result weft_coll_all_reduce(weft_coll *coll, const weft_coll_args *args,
                                          weft_stream *stream);
/* recv[count] = this rank's row of the reduction of all ranks' send[R][count]. In place: recv is
 * that row of send. */
WEFT_API weft_result weft_coll_reduce_scatter(weft_coll *coll, const weft_coll_args *args,
                                              weft_stream *stream);
/* recv[R][count]: row r is rank r's send[count]. In place: send is this rank's row of recv. */
WEFT_API weft_result weft_coll_all_gather(weft_coll *coll, const weft_coll_args *args,
                                          weft_stream *stream);
/* recv[R][count]: row r is row `rank` of rank r's send[R][count]. It has no in-place form, as
 * NCCL's: rows would arrive where others have not been sent from yet. */
WEFT_API weft_result weft_coll_all_to_all(weft_coll *coll, const weft_coll_args *args,
                                          weft_stream *stream);
/* recv[count] = rank root's send[count]; the others' send is ignored. In place: recv is send. */
WEFT_API weft_result weft_coll_broadcast(weft_coll *coll, const weft_coll_args *args,
                                         weft_stream *stream);
/* Rank root's recv[count] = the reduction of all ranks' send[count], with the bits of all_reduce;
 * the others' recv is ignored. In place: recv is send. */
WEFT_API weft_result weft_coll_reduce(weft_coll *coll, const weft_coll_args *args,
                                      weft_stream *stream);
/* Rank root's recv[R][count]: row r is rank r's send[count]; the others' recv is ignored. In place:
 * send is the root's row of recv. */
WEFT_API weft_result weft_coll_gather(weft_coll *coll, const weft_coll_args *args,
                                      weft_stream *stream);
/* recv[count] = this rank's row of rank root's send[R][count]; the others' send is ignored. In
 * place: recv is the root's row of send. */
WEFT_API weft_result weft_coll_scatter(weft_coll *coll, const weft_coll_args *args,
                                       weft_stream *stream);

typedef struct weft_coll_all_to_all_v_args {
    size_t size;
    const void *send;
    void *recv;
    /* [R] each, elements; copied. What rank s sends to rank r must be what r receives from s. */
    const int64_t *send_counts;
    const int64_t *send_offsets;
    const int64_t *recv_counts;
    const int64_t *recv_offsets;
    weft_dtype dtype;
    int32_t reserved; /* 0 */
} weft_coll_all_to_all_v_args;

/* As MPI_Alltoallv, of any ranks. Offsets may leave gaps, which are not touched. Rows may overlap
 * where they are sent from, not where they are received. A rank knows only its own counts, so they
 * choose no algorithm: if none is pinned it is PUSH, and what a rank receives must fit
 * staging_bytes or be in the heap, or registered: else WEFT_ERROR_UNSUPPORTED. By RAILS rows go
 * from any memory to any, from rank to rank, as sends and receives do. The rank that receives sees
 * counts that differ, and tells all others. */
WEFT_API weft_result weft_coll_all_to_all_v(weft_coll *coll,
                                            const weft_coll_all_to_all_v_args *args,
                                            weft_stream *stream);

/*
 * Sends and receives: stream operations that only the sender and the receiver call. Other ranks
 * need not know of them. Semantics are those of ncclSend and ncclRecv, of ncclGroupStart and
 * ncclGroupEnd. Between any ranks, of one node or of several.
 *
 * What rank s sends rank r is received there in the order in which s has issued it: the n-th send
 * to r is the n-th receive from s, in whichever groups they are. count and dtype of both must be
 * the same (WEFT_ERROR_MISMATCH names the peer). A send or receive alone is a group of one. The
 * operations of a group are done together: they wait for the peers, but not for each other, in
 * whichever order they were issued. Those of different groups, and the other operations of coll,
 * follow each other as issued: so two ranks that exchange something do it in one group. A peer that
 * does not come is an error that names it.
 *
 * When a group has finished on this rank, what it sends may be overwritten, and what it receives is
 * there. It cannot finish before the peers have begun the groups that receive from this rank.
 * Memory may be any, and goes through slots of coll's (num_channels, num_staging_slots and
 * staging_slot_bytes of weft_coll_config): no more than the staging block, however many ranks there
 * are. A rank may send to itself, if the receive is in the same group.
 *
 * Example group: each rank sends a number to the next one.
 *
 *     const int32_t num_ranks = weft_comm_num_ranks(comm), rank = weft_comm_rank(comm);
 *     weft_coll *coll;
 *     weft_stream *stream;
 *     void *memory;
 *     CHECK(weft_coll_create(comm, NULL, &coll));
 *     CHECK(weft_stream_create(comm, &stream));
 *     CHECK(weft_memory_alloc(comm, 2 * sizeof(int32_t), &memory));
 *     CHECK(weft_memory_copy(comm, memory, &rank, sizeof rank));
 *
 *     weft_coll_send_args send = WEFT_INIT(weft_coll_send_args);
 *     send.send = memory;
 *     send.count = 1;
 *     send.dtype = WEFT_INT32;
 *     send.peer = (rank + 1) % num_ranks;
 *     weft_coll_recv_args recv = WEFT_INIT(weft_coll_recv_args);
 *     recv.recv = (int32_t *)memory + 1;
 *     recv.count = 1;
 *     recv.dtype = WEFT_INT32;
 *     recv.peer = (rank + num_ranks - 1) % num_ranks;
 *     CHECK(weft_coll_group_begin(coll));
 *     CHECK(weft_coll_send(coll, &send, stream));
 *     CHECK(weft_coll_recv(coll, &recv, stream));
 *     CHECK(weft_coll_group_end(coll));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     int32_t received;
 *     CHECK(weft_memory_copy(comm, &received, (int32_t *)memory + 1, sizeof received));
 *     EXPECT(received == recv.peer);
 *     CHECK(weft_memory_free(comm, memory));
 *     CHECK(weft_stream_destroy(stream));
 *     CHECK(weft_coll_destroy(coll));
 */
typedef struct weft_coll_send_args {
    size_t size;
    const void *send;
    int64_t count; /* elements, 0..WEFT_COLL_MAX_BYTES of them */
    weft_dtype dtype;
    int32_t peer; /* rank of comm */
} weft_coll_send_args;

typedef struct weft_coll_recv_args {
    size_t size;
    void *recv;
    int64_t count;
    weft_dtype dtype;
    int32_t peer;
} weft_coll_recv_args;

/* send[count] of this rank goes to the peer. */
WEFT_API weft_result weft_coll_send(weft_coll *coll, const weft_coll_send_args *args,
                                    weft_stream *stream);
/* recv[count] = what the peer sends. */
WEFT_API weft_result weft_coll_recv(weft_coll *coll, const weft_coll_recv_args *args,
                                    weft_stream *stream);
/* From now on sends and receives of coll, all on the same stream and as many as one likes, are
 * collected. Groups within a group are part of it. Other operations of coll are not: they are
 * enqueued at once. */
WEFT_API weft_result weft_coll_group_begin(weft_coll *coll);
/* Enqueues the group, whose structs were copied. If one of its calls was refused, nothing of it is
 * done, and the error is that call's. */
WEFT_API weft_result weft_coll_group_end(weft_coll *coll);

/* Which algorithm an operation of `bytes` would use, where bytes are those of the input for
 * ALL_REDUCE, BROADCAST and REDUCE, of one row for the others. AUTO if there is no such coll or
 * collective. */
WEFT_API weft_algorithm weft_coll_algorithm(const weft_coll *coll, weft_collective collective,
                                            uint64_t bytes);
/* "oneshot", ...; "?" if there is none; never NULL. */
WEFT_API const char *weft_coll_algorithm_name(weft_algorithm algorithm);

/* The reason for the choice of an algorithm; the first of these that says something chooses. */
typedef enum weft_coll_reason {
    WEFT_COLL_ONLY_ONE = 0, /* over several nodes, but for broadcasts over many */
    WEFT_COLL_PINNED = 1,   /* by weft_coll_config, or asked for by the call that explains it */
    WEFT_COLL_TABLE = 2,    /* a row of the file that WEFT_TUNING names */
    /* A row of a table that the library has with it: of just this GPU and number of ranks, where
     * each rank has a GPU of its own. */
    WEFT_COLL_SHIPPED_TABLE = 3,
    WEFT_COLL_FORMULA = 4, /* the size, by limits that were measured on such machines */
    WEFT_COLL_MODEL = 5    /* what a model expects of each, of broadcasts over many nodes */
} weft_coll_reason;

typedef struct weft_coll_explanation {
    size_t size;
    weft_algorithm algorithm;
    weft_coll_reason reason;
    int32_t num_blocks; /* that are asked for; 0: the machine chooses */
    int32_t num_warps;  /* the same */
    /* Over several nodes on machine cpu, else 0, as a model expects them: the operation's time, the
     * part of the time that does not depend on the bytes, and the bytes of the busiest node. */
    double expected_us;
    double latency_us;
    uint64_t link_bytes;
    /* On one node: of a rank's links, measured or assumed; 0: ranks share memory. */
    double link_gbps;
    uint64_t table_max_bytes; /* up to which the table's row holds; 0: no table has chosen */
    int32_t table_line;       /* of this row; 0: no table has chosen */
    int32_t reserved;
    char table[128]; /* the file, or the device whose table the library has; "" */
    /* Over several nodes, else 0. The latency of a message between nodes, without the work of its
     * two ends: the network measured it when the communicator was made, or it is assumed. The rate
     * of a node's port, 0 if it is not known. How many messages follow each other. */
    double net_latency_us;
    double net_gbps;
    int32_t num_hops;
    int32_t net_is_measured; /* the latency; else it is assumed */
} weft_coll_explanation;

/* Explains which algorithm an operation of `bytes`, as of weft_coll_algorithm, would use, why, and
 * its expected time. If algorithm is not AUTO, it explains that one (WEFT_ERROR_UNSUPPORTED if the
 * algorithm cannot do the operation). Needs no other rank. */
WEFT_API weft_result weft_coll_explain(const weft_coll *coll, weft_collective collective,
                                       weft_algorithm algorithm, uint64_t bytes,
                                       weft_coll_explanation *explanation);

/* The memory with which operations of a weft_coll were recorded, on streams under capture (by
 * weft_graph_begin, or by CUDA's own functions). */
typedef struct weft_coll_record weft_coll_record;

/* From now on operations of coll on streams under capture are recorded with their inputs and
 * outputs where they are, also if these are neither in the heap nor registered;
 * weft_coll_record_end registers them. Without it, and where CUDA says that the memory cannot be
 * shared, they are staged in graphs too. One record of a weft_coll at a time. */
WEFT_API weft_result weft_coll_record_begin(weft_coll *coll, weft_coll_record **record);
/* Collective, when the streams' captures have ended and before any of their graphs runs. All ranks
 * must have recorded the same operations in the same order (WEFT_ERROR_MISMATCH names a rank). The
 * memory must stay allocated until weft_coll_record_destroy. After an error the graphs must not
 * run. WEFT_ERROR_UNSUPPORTED, with the reason: some memory cannot be mapped after all. */
WEFT_API weft_result weft_coll_record_end(weft_coll_record *record);
/* Collective: when the graphs run no more on any rank. When it returns, no other rank has the
 * memory mapped; after a failure of the communicator that happens at weft_comm_destroy. */
WEFT_API weft_result weft_coll_record_destroy(weft_coll_record *record);

#ifdef __cplusplus
}
#endif

#endif
