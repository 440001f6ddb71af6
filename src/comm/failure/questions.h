/* SPDX-License-Identifier: MIT */
/* Questions of this rank to others that wait for their answers; guarded by the mutex of a status,
 * whose condition tells of answers. */
#pragma once

#include "comm/comm.h"
#include "comm/rendezvous/wire.h"

/* Memory of whoever waits. */
struct weft__open_question {
    struct weft__open_question *next;
    uint64_t number;
    int32_t asked;
    uint8_t asked_state; /* enum weft__rank_state, when it was asked */
    enum { WEFT__NOT_ANSWERED, WEFT__ANSWERED } state;
    struct weft__wait_list answer;
};

struct weft__questions { /* zero at first, but for the status */
    struct weft__status *status;
    struct weft__open_question *first;
    uint64_t num_asked;
    enum { WEFT__ANSWERS_MAY_COME, WEFT__ANSWERS_CANNOT_COME } outlook;
};

/* Gives it its number, under which rank `asked` may be asked then. */
void weft__questions_open(struct weft__questions *questions, struct weft__open_question *open,
                          int32_t asked);
/* Waits for the answer, until the rank leaves, and closes the question. */
enum weft__ask_result weft__questions_await(struct weft__questions *questions,
                                            struct weft__open_question *open, int64_t deadline_ns);
void weft__questions_answer(struct weft__questions *questions, const struct weft__answer *answer);
/* Nobody needs to wait any more. */
void weft__questions_give_up(struct weft__questions *questions);
