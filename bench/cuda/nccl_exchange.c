/* SPDX-License-Identifier: MIT */
#include "nccl_exchange.h"

#include <stdlib.h>

#include "try.h"

static void count_rows(struct nccl_exchange *exchange, const struct plan *plan)
{
    const int32_t self = exchange->rank;
    int32_t first_sent = 0, first_received = 0;
    for (int32_t rank = 0; rank < exchange->num_ranks; rank++) {
        exchange->num_sent[rank] = rank == self ? 0 : routing_count(plan, self, rank);
        exchange->first_sent[rank] = first_sent;
        first_sent += exchange->num_sent[rank];
        exchange->num_received[rank] = routing_count(plan, rank, self);
        exchange->first_received[rank] = first_received;
        first_received += exchange->num_received[rank];
    }
}

/* Every rank's rows of one source follow each other, so a packed place is the row at the receiver,
 * less the first from this source. */
static int upload_packed_rows(struct nccl_exchange *exchange, const struct plan *plan)
{
    const size_t num_ranks = (size_t)plan->num_ranks;
    const size_t bytes = (size_t)plan->num_tokens * num_ranks * sizeof(int32_t);
    int32_t *places = malloc(bytes + 1);
    if (places == NULL) {
        perror("malloc");
        return -1;
    }
    for (int32_t rank = 0; rank < plan->num_ranks; rank++) {
        int32_t place = rank == exchange->rank ? exchange->first_received[rank] : 0;
        for (int32_t token = 0; token < plan->num_tokens; token++) {
            const int32_t row = plan_row(plan, exchange->rank, token, rank);
            places[token * plan->num_ranks + rank] = row == PLAN_NO_ROW ? -1 : place++;
        }
    }
    const int result =
        device_upload(&exchange->memory, places, bytes, (void **)&exchange->packed.rows);
    free(places);
    return result;
}

static int alloc_plane(struct nccl_exchange *exchange, const struct plan *plan, int32_t plane)
{
    const int32_t last = exchange->num_ranks - 1;
    const size_t row_bytes = (size_t)exchange->format->row_bytes[plane];
    const int32_t num_sent = exchange->first_sent[last] + exchange->num_sent[last];
    struct row_plane *packed = &exchange->packed.planes[plane];
    char *send;
    TRY(device_alloc(&exchange->memory, (size_t)plan->num_tokens * row_bytes,
                     (void **)&exchange->tokens.planes[plane]));
    TRY(device_alloc(&exchange->memory, (size_t)exchange->received.num_rows * row_bytes,
                     (void **)&exchange->received.planes[plane]));
    TRY(device_alloc(&exchange->memory, (size_t)num_sent * row_bytes, (void **)&send));
    packed->x = exchange->tokens.planes[plane];
    packed->row_bytes = (int32_t)row_bytes;
    exchange->tokens.row_bytes[plane] = exchange->received.row_bytes[plane] = (int32_t)row_bytes;
    for (int32_t rank = 0; rank < exchange->num_ranks; rank++)
        packed->recv[rank] = send + (size_t)exchange->first_sent[rank] * row_bytes;
    packed->recv[exchange->rank] = exchange->received.planes[plane];
    return 0;
}

int nccl_exchange_init(struct nccl_exchange *exchange, const struct plan *plan)
{
    const int32_t num_planes = exchange->format->num_planes;
    const size_t out_bytes = (size_t)plan->num_tokens * (size_t)exchange->format->row_bytes[0];
    struct row_tables tables;
    int device;
    CUDA_TRY(cudaGetDevice(&device));
    CUDA_TRY(cudaDeviceGetAttribute(&exchange->num_blocks, cudaDevAttrMultiProcessorCount, device));
    count_rows(exchange, plan);
    exchange->packed = (struct token_rows){.rank = exchange->rank,
                                           .num_ranks = exchange->num_ranks,
                                           .num_tokens = plan->num_tokens,
                                           .num_planes = num_planes};
    exchange->tokens = (struct pattern){.num_rows = plan->num_tokens, .num_planes = num_planes};
    exchange->received =
        (struct pattern){.num_rows = plan->num_recv[exchange->rank], .num_planes = num_planes};
    for (int32_t plane = 0; plane < num_planes; plane++)
        TRY(alloc_plane(exchange, plan, plane));
    TRY(device_alloc(&exchange->memory, out_bytes, (void **)&exchange->packed.out));
    TRY(device_alloc(&exchange->memory, sizeof(uint32_t), (void **)&exchange->num_wrong));
    exchange->received.num_wrong = exchange->num_wrong;
    TRY(upload_packed_rows(exchange, plan));
    TRY(row_tables_upload(&tables, &exchange->memory, plan, exchange->rank));
    exchange->tokens.numbers = tables.sent;
    exchange->received.numbers = tables.received;
    CUDA_TRY(pattern_fill(&exchange->tokens, exchange->stream));
    return 0;
}

void nccl_exchange_destroy(struct nccl_exchange *exchange)
{
    device_free_all(&exchange->memory);
}

/* Rows of this rank at `other`, packed or to be packed; of each plane. */
static char *packed_for(const struct nccl_exchange *exchange, int32_t plane, int32_t other)
{
    return exchange->packed.planes[plane].recv[other];
}

static char *received_from(const struct nccl_exchange *exchange, int32_t plane, int32_t other)
{
    return exchange->received.planes[plane] +
           (size_t)exchange->first_received[other] * (size_t)exchange->format->row_bytes[plane];
}

static int send_receive(struct nccl_exchange *exchange, int32_t other, const char *send,
                        size_t send_bytes, char *receive, size_t receive_bytes)
{
    if (send_bytes > 0)
        NCCL_TRY(ncclSend(send, send_bytes, ncclChar, other, exchange->nccl, exchange->stream));
    if (receive_bytes > 0)
        NCCL_TRY(
            ncclRecv(receive, receive_bytes, ncclChar, other, exchange->nccl, exchange->stream));
    return 0;
}

static int exchange_packed(struct nccl_exchange *exchange)
{
    NCCL_TRY(ncclGroupStart());
    for (int32_t other = 0; other < exchange->num_ranks; other++) {
        for (int32_t plane = 0; plane < exchange->format->num_planes && other != exchange->rank;
             plane++) {
            const size_t row_bytes = (size_t)exchange->format->row_bytes[plane];
            TRY(send_receive(exchange, other, packed_for(exchange, plane, other),
                             (size_t)exchange->num_sent[other] * row_bytes,
                             received_from(exchange, plane, other),
                             (size_t)exchange->num_received[other] * row_bytes));
        }
    }
    NCCL_TRY(ncclGroupEnd());
    return 0;
}

/* Plane 0 alone is combined. */
static int exchange_back(struct nccl_exchange *exchange)
{
    const size_t row_bytes = (size_t)exchange->format->row_bytes[0];
    NCCL_TRY(ncclGroupStart());
    for (int32_t other = 0; other < exchange->num_ranks; other++) {
        if (other != exchange->rank)
            TRY(send_receive(exchange, other, received_from(exchange, 0, other),
                             (size_t)exchange->num_received[other] * row_bytes,
                             packed_for(exchange, 0, other),
                             (size_t)exchange->num_sent[other] * row_bytes));
    }
    NCCL_TRY(ncclGroupEnd());
    return 0;
}

int nccl_exchange_dispatch(struct nccl_exchange *exchange)
{
    CUDA_TRY(push_ldst(&exchange->packed, exchange->num_blocks, exchange->stream));
    return exchange_packed(exchange);
}

int nccl_exchange_combine(struct nccl_exchange *exchange)
{
    TRY(exchange_back(exchange));
    CUDA_TRY(pull_ldst(&exchange->packed, exchange->num_blocks, exchange->stream));
    return 0;
}

static int expect_none_wrong(const struct nccl_exchange *exchange, const char *what)
{
    uint32_t num_wrong;
    CUDA_TRY(cudaStreamSynchronize(exchange->stream));
    CUDA_TRY(
        cudaMemcpy(&num_wrong, exchange->num_wrong, sizeof(num_wrong), cudaMemcpyDeviceToHost));
    if (num_wrong == 0)
        return 0;
    fprintf(stderr, "%s, rows of %s bytes: rank %d has %u wrong units\n", what,
            exchange->format->text, exchange->rank, num_wrong);
    return -1;
}

enum { POISON = 0xff };

int nccl_exchange_check(struct nccl_exchange *exchange)
{
    struct pattern received = exchange->received;
    for (int32_t plane = 0; plane < received.num_planes; plane++)
        CUDA_TRY(cudaMemsetAsync(received.planes[plane], POISON,
                                 (size_t)received.num_rows * (size_t)received.row_bytes[plane],
                                 exchange->stream));
    TRY(nccl_exchange_dispatch(exchange));
    CUDA_TRY(pattern_check(&received, exchange->stream));
    TRY(expect_none_wrong(exchange, "dispatch"));
    /* Each rank's rows differ from those of the others, also where they are of the same token. */
    received.tag = exchange->rank + 1;
    CUDA_TRY(pattern_fill(&received, exchange->stream));
    TRY(nccl_exchange_combine(exchange));
    CUDA_TRY(pattern_check_sums(&exchange->packed, exchange->tokens.numbers, exchange->num_wrong,
                                exchange->stream));
    return expect_none_wrong(exchange, "combine");
}
