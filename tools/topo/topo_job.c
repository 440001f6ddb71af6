/* SPDX-License-Identifier: MIT */
#include "topo_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/host/error.h"

static weft_result make_room(struct topo_job *job, int32_t num_machines)
{
    job->machines = calloc((size_t)num_machines, sizeof *job->machines);
    if (job->machines == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d machines", num_machines);
    job->num_machines = num_machines;
    return WEFT_OK;
}

weft_result topo_job_read(const struct topo_options *options, struct topo_job *job)
{
    const int32_t num_files = options->files.count;
    WEFT__TRY(make_room(job, num_files > 0 ? num_files : 1));
    for (int32_t i = 0; i < job->num_machines; i++)
        WEFT__TRY(
            topo_machine_read(num_files > 0 ? options->files.texts[i] : NULL, &job->machines[i]));
    return WEFT_OK;
}

void topo_job_free(struct topo_job *job)
{
    for (int32_t i = 0; i < job->num_machines; i++) {
        channel_sets_free(&job->machines[i].sets);
        topo_free(job->machines[i].topo);
        xml_remove(job->machines[i].system);
    }
    free(job->machines);
    *job = (struct topo_job){0};
}

/* ------------------------------------------------------------------ ranks of a job */

/* The message of a node's first rank: as many bytes of text. */
struct told {
    char name[sizeof((struct topo_view *)0)->name];
    uint64_t num_bytes; /* 0: another rank of the node tells */
};

static int is_first_of_node(weft_comm *comm, int32_t rank)
{
    for (int32_t other = 0; other < rank; other++)
        if (weft_comm_node(comm, other) == weft_comm_node(comm, rank))
            return 0;
    return 1;
}

/* This host's, or the file that is told here. */
static weft_result print_own(const struct topo_options *options, struct told *told, char **text)
{
    struct topo_view own = {0};
    char host[64] = "?";
    size_t num_bytes = 0;
    const char *file = options->files.count > 0 ? options->files.texts[0] : NULL;
    weft_result result = topo_machine_read(file, &own);
    if (result == WEFT_OK)
        result = xml_print(own.system, text, &num_bytes);
    (void)gethostname(host, sizeof host - 1);
    snprintf(told->name, sizeof told->name, "%.200s%s%s", file != NULL ? file : "host ",
             file != NULL ? " of host " : "", host);
    told->num_bytes = num_bytes;
    xml_remove(own.system);
    return result;
}

/* All of one rank's text, piece by piece, since what is gathered at a time is limited. */
static weft_result gather_texts(weft_comm *comm, const struct told *told, const char *own,
                                char **texts)
{
    enum { PIECE_BYTES = 64 << 10 };
    const int32_t num_ranks = weft_comm_num_ranks(comm), rank = weft_comm_rank(comm);
    char *piece = calloc((size_t)num_ranks + 1, PIECE_BYTES);
    if (piece == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for the texts of %d ranks",
                           num_ranks);
    char *pieces = piece + PIECE_BYTES;
    weft_result result = WEFT_OK;
    uint64_t most_bytes = 0;
    for (int32_t r = 0; r < num_ranks; r++)
        most_bytes = told[r].num_bytes > most_bytes ? told[r].num_bytes : most_bytes;
    for (uint64_t at = 0; at < most_bytes && result == WEFT_OK; at += PIECE_BYTES) {
        if (at < told[rank].num_bytes)
            memcpy(piece, own + at,
                   told[rank].num_bytes - at < PIECE_BYTES ? told[rank].num_bytes - at
                                                           : PIECE_BYTES);
        result = weft_comm_host_all_gather(comm, piece, PIECE_BYTES, pieces);
        for (int32_t r = 0; r < num_ranks && result == WEFT_OK; r++)
            if (texts[r] != NULL && at < told[r].num_bytes)
                memcpy(texts[r] + at, pieces + (size_t)r * PIECE_BYTES,
                       told[r].num_bytes - at < PIECE_BYTES ? told[r].num_bytes - at : PIECE_BYTES);
    }
    free(piece);
    return result;
}

static weft_result parse_texts(const struct told *told, char *const *texts, int32_t num_ranks,
                               struct topo_job *job)
{
    int32_t num_machines = 0;
    for (int32_t r = 0; r < num_ranks; r++)
        num_machines += told[r].num_bytes > 0;
    WEFT__TRY(make_room(job, num_machines));
    for (int32_t r = 0, i = 0; r < num_ranks; r++) {
        if (told[r].num_bytes == 0)
            continue;
        struct topo_view *view = &job->machines[i++];
        memcpy(view->name, told[r].name, sizeof view->name);
        WEFT__TRY(topo_parse(view->name, texts[r], told[r].num_bytes, &view->system));
    }
    return WEFT_OK;
}

static weft_result make_texts(const struct told *told, int32_t num_ranks, char **texts)
{
    for (int32_t r = 0; r < num_ranks; r++) {
        texts[r] = malloc(told[r].num_bytes + 1);
        if (texts[r] == NULL)
            return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for the topology of rank %d",
                               r);
    }
    return WEFT_OK;
}

static weft_result gather(weft_comm *comm, struct told *told, char **texts, const char *own,
                          struct topo_job *job)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm), rank = weft_comm_rank(comm);
    const struct told of_this = told[rank];
    WEFT__TRY(weft_comm_host_all_gather(comm, &of_this, sizeof of_this, told));
    if (rank == 0)
        WEFT__TRY(make_texts(told, num_ranks, texts));
    WEFT__TRY(gather_texts(comm, told, own, texts));
    return rank == 0 ? parse_texts(told, texts, num_ranks, job) : WEFT_OK;
}

weft_result topo_job_gather(const struct topo_options *options, weft_comm *comm,
                            struct topo_job *job)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm), rank = weft_comm_rank(comm);
    struct told *told = calloc((size_t)num_ranks, sizeof *told);
    char **texts = calloc((size_t)num_ranks, sizeof *texts), *own = NULL;
    weft_result result = told != NULL && texts != NULL
                             ? WEFT_OK
                             : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for topologies");
    if (result == WEFT_OK && is_first_of_node(comm, rank))
        result = print_own(options, &told[rank], &own);
    if (result == WEFT_OK)
        result = gather(comm, told, texts, own, job);
    for (int32_t r = 0; texts != NULL && r < num_ranks; r++)
        free(texts[r]);
    free(texts);
    free(told);
    free(own);
    return result;
}

weft_result topo_job_search(const struct topo_options *options, struct topo_job *job)
{
    int32_t first_rank = 0;
    for (int32_t i = 0; i < job->num_machines; i++) {
        struct topo_view *view = &job->machines[i];
        view->num_alike = options->num_alike;
        view->num_nodes = options->num_alike * job->num_machines;
        WEFT__TRY(topo_machine_build(options, job->num_machines > 1 ? first_rank : -1, view));
        WEFT__TRY(topo_machine_search(view));
        first_rank += view->num_alike * topo_count(view->topo, TOPO_GPU);
    }
    return WEFT_OK;
}
