/* SPDX-License-Identifier: MIT */
#include "comm/failure/questions.h"

#include "comm/host/thread.h"

void weft__questions_open(struct weft__questions *questions, struct weft__open_question *open,
                          int32_t asked)
{
    pthread_mutex_lock(&questions->status->mutex);
    *open = (struct weft__open_question){.next = questions->first,
                                         .number = ++questions->num_asked,
                                         .asked = asked,
                                         .asked_state =
                                             atomic_load(&questions->status->rank_states[asked])};
    questions->first = open;
    pthread_mutex_unlock(&questions->status->mutex);
}

void weft__questions_answer(struct weft__questions *questions, const struct weft__answer *answer)
{
    pthread_mutex_lock(&questions->status->mutex);
    for (struct weft__open_question *open = questions->first; open != NULL; open = open->next) {
        if (open->number == answer->number) {
            open->answer = answer->waits;
            open->state = WEFT__ANSWERED;
        }
    }
    pthread_cond_broadcast(&questions->status->changed);
    pthread_mutex_unlock(&questions->status->mutex);
}

void weft__questions_give_up(struct weft__questions *questions)
{
    pthread_mutex_lock(&questions->status->mutex);
    questions->outlook = WEFT__ANSWERS_CANNOT_COME;
    pthread_cond_broadcast(&questions->status->changed);
    pthread_mutex_unlock(&questions->status->mutex);
}

/* The rest with the mutex held. */

static int can_be_answered(const struct weft__questions *questions)
{
    return atomic_load(&questions->status->result) == WEFT_OK &&
           questions->outlook == WEFT__ANSWERS_MAY_COME;
}

/* It may have left with the question unread. */
static int has_left_since(const struct weft__questions *questions,
                          const struct weft__open_question *open)
{
    return atomic_load(&questions->status->rank_states[open->asked]) != open->asked_state;
}

static void take_out(struct weft__questions *questions, const struct weft__open_question *open)
{
    struct weft__open_question **link = &questions->first;
    while (*link != open)
        link = &(*link)->next;
    *link = open->next;
}

enum weft__ask_result weft__questions_await(struct weft__questions *questions,
                                            struct weft__open_question *open, int64_t deadline_ns)
{
    struct weft__status *status = questions->status;
    const struct timespec deadline = weft__timespec(deadline_ns);
    enum weft__ask_result result = WEFT__ASK_SILENT;
    pthread_mutex_lock(&status->mutex);
    while (open->state == WEFT__NOT_ANSWERED && can_be_answered(questions) &&
           !has_left_since(questions, open) && weft__now_ns() < deadline_ns)
        pthread_cond_timedwait(&status->changed, &status->mutex, &deadline);
    if (open->state == WEFT__ANSWERED)
        result = WEFT__ASK_ANSWERED;
    else if (!can_be_answered(questions))
        result = WEFT__ASK_IMPOSSIBLE;
    else if (has_left_since(questions, open))
        result = WEFT__ASK_LOST;
    take_out(questions, open);
    pthread_mutex_unlock(&status->mutex);
    return result;
}
