/* SPDX-License-Identifier: MIT */
/* Measured figures: those of bench/results, and lines of weft ep and weft coll with --json. A
 * figure is one number with its name, the sizes that it is for and words, all that tells it from
 * others. Figures of one operation are a group; in it a series has one name and the same words, at
 * several sizes. */
#pragma once

#include <jansson.h>
#include <stdint.h>

/* A figure's numbers, NAN where it has none. */
enum figure_measure { FIGURE_VALUE, FIGURE_GBPS, FIGURE_IMBALANCE, FIGURE_NUM_MEASURES };
enum figure_axis {
    FIGURE_BYTES,
    FIGURE_TOKENS,
    FIGURE_SMS,
    FIGURE_LAYER,
    FIGURE_NUM_AXES,
    FIGURE_NO_AXIS = FIGURE_NUM_AXES
};

enum { FIGURE_OP_CHARS = 96, FIGURE_PEER_CHARS = 16 };

struct figure {
    json_t *json; /* has its texts */
    const char *name, *unit;
    char own_name[FIGURE_OP_CHARS]; /* name is this one, if the JSON has none */
    char op[FIGURE_OP_CHARS];       /* the name without peer, size and unit */
    char peer[FIGURE_PEER_CHARS];   /* the library that was measured; "": not named */
    double measures[FIGURE_NUM_MEASURES];
    double least, most;
    double at[FIGURE_NUM_AXES]; /* NAN: not for a size of this kind */
    json_t *words;              /* an object with a key for each */
    int64_t num_wrong;
};

struct figure_list {
    struct figure *list;
    int count, room;
};
/* Keeps json, an object. Returns NULL, or which field is wrong. */
const char *figures_add(struct figure_list *figures, json_t *json);
void figures_free(struct figure_list *figures);
/* Is it one? */
int figure_is_in(const json_t *json);

/* Keeps the words that others have, or those that they do not have. */
void figure_words_keep(json_t *words, const json_t *others);
void figure_words_drop(json_t *words, const json_t *others);
/* The figure's words without the one that names its size on the axis. */
json_t *figure_words_but(const struct figure *figure, enum figure_axis axis);
/* The machine and the date that a figure tells, "" if none. */
enum { FIGURE_MACHINE_CHARS = 160 };
void figure_machine(const json_t *json, char text[FIGURE_MACHINE_CHARS]);

struct series {
    const struct figure *first;
    json_t *words;           /* without size, and without those that all of the group share */
    json_t *label_words;     /* as few as tell it from the peer's other curves */
    char label[128];         /* the peer, and these */
    int is_charted, variant; /* the variant counts the peer's */
    int colour;              /* by the peer, or by the variant if there is one peer */
    int num_figures;
    const struct figure **figures; /* by size */
};

struct group {
    const char *op, *unit;
    enum figure_axis axis; /* FIGURE_NO_AXIS: figures have no size in common */
    json_t *words;         /* shared */
    int has_peers;         /* more than one library was measured */
    int num_figures, num_series;
    const struct figure **figures; /* in the file's order */
    struct series *series;
    int num_sizes;
    double *sizes; /* of all series, in order */
};

/* All groups of these figures, in order of appearance. Returns their number, or -1 without
 * memory. */
int groups_create(const struct figure_list *figures, struct group **groups);
void groups_destroy(struct group *groups, int num_groups);
