/* SPDX-License-Identifier: MIT */
/* The parts of a page, by what they show. */
#pragma once

#include "report/figures.h"

/* Charts and tables of figures. 0, or -1 without memory. */
int figures_write(FILE *file, const struct figure_list *figures);
/* One chart. Returns its height in pixels; 0: there is nothing to draw. */
int figures_write_chart(FILE *file, const struct group *group, enum figure_measure measure);
void figures_write_words(FILE *file, const json_t *words);
/* How long the steps of a layer take, if there are any. */
void layers_write(FILE *file, const struct figure_list *figures);
/* Its drawing alone, as figures_write_chart(); and the words that all layers share, or NULL. */
int layers_draw(FILE *file, const struct figure_list *figures, json_t **shared);

/* Records of ranks, as WEFT_RECORD=DIR leaves them: an array of these objects. The fields that are
 * read: rank, world_size, host, key, failure, waits_for, slowest {rank, late, operations, late_ns},
 * peers [{rank, waited_ns}] and entries [{profiling_name, state, end, collective_seq_id,
 * time_created_ns, time_discovered_started_ns, time_discovered_completed_ns}]. */
int record_is_in(const json_t *json);
/* Returns NULL, or which field is wrong. */
const char *record_check(const json_t *json);
/* Those of one communicator. 0, or -1 without memory. */
int records_write(FILE *file, const json_t *records);
