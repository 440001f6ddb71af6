/* SPDX-License-Identifier: MIT */
/*
 * A hash table of words, each an object's address and, in the bits that its alignment leaves, its
 * kind. Who looks for a word needs no lock: all words that it can see are of objects that existed
 * when it began. It may miss one that is being moved; so it looks again, under the lock, before it
 * says that there is none.
 */
#include "api/objects.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/host/error.h"

enum { ALIGNMENT = 16, FIRST_LOG2 = 8 };
_Static_assert((int)WEFT__NUM_KINDS <= (int)ALIGNMENT, "a kind fits the low bits of an address");

struct table {
    struct table *before; /* smaller, and not used any more: somebody may still look into it */
    int log2_words;
    _Atomic uintptr_t words[]; /* 0: free; at most half of them are not */
};

/* The objects that belong to one. */
struct belonging {
    struct belonging *next; /* entered before */
    struct weft__object object;
    const void *owner;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct table *_Atomic table;
static size_t num_objects;
static struct belonging *belongings;

static const struct {
    const char *type;
    const char *maker;
} kinds[WEFT__NUM_KINDS] = {
    [WEFT__KIND_COMM] = {"weft_comm", "weft_comm_create, its like or a split"},
    [WEFT__KIND_MEMORY] = {"memory", "weft_memory_alloc"},
    [WEFT__KIND_ARENA] = {"weft_arena", "weft_arena_create"},
    [WEFT__KIND_COLL] = {"weft_coll", "weft_coll_create"},
    [WEFT__KIND_CAPTURE] = {"weft_coll_record", "weft_coll_record_begin"},
    [WEFT__KIND_EP] = {"weft_ep", "weft_ep_create"},
    [WEFT__KIND_HANDLE] = {"weft_ep_handle", "weft_ep_handle_create"},
    [WEFT__KIND_LL] = {"weft_ll", "weft_ll_create"},
    [WEFT__KIND_STREAM] = {"weft_stream", "weft_stream_create or weft_stream_wrap"},
    [WEFT__KIND_EVENT] = {"weft_event", "weft_event_create"},
    [WEFT__KIND_GRAPH] = {"weft_graph", "weft_graph_end"},
};

/* ---------------------------------------------------------------- the table */

static uintptr_t word_of(enum weft__kind kind, const void *object)
{
    return (uintptr_t)object | (uintptr_t)kind;
}

static size_t num_words(const struct table *words)
{
    return (size_t)1 << words->log2_words;
}

/* Where a word is if no other took its place. */
static size_t home_of(const struct table *words, uintptr_t word)
{
    return (size_t)((uint64_t)(word / ALIGNMENT) * UINT64_C(0x9e3779b97f4a7c15) >>
                    (64 - words->log2_words));
}

/* Where the word is, or else the free place behind its home. */
static size_t find(const struct table *words, uintptr_t word)
{
    size_t i = home_of(words, word);
    for (;;) {
        const uintptr_t seen = atomic_load_explicit(&words->words[i], memory_order_acquire);
        if (seen == word || seen == 0)
            return i;
        i = (i + 1) & (num_words(words) - 1);
    }
}

static int contains(const struct table *words, uintptr_t word)
{
    return words != NULL &&
           atomic_load_explicit(&words->words[find(words, word)], memory_order_acquire) == word;
}

static struct table *current(void)
{
    return atomic_load_explicit(&table, memory_order_acquire);
}

static void put(struct table *words, uintptr_t word)
{
    atomic_store_explicit(&words->words[find(words, word)], word, memory_order_release);
}

/* Under the lock: makes room for one more. */
static int grow(void)
{
    struct table *old = current();
    if (old != NULL && 2 * (num_objects + 1) <= num_words(old))
        return 1;
    const int log2_words = old == NULL ? FIRST_LOG2 : old->log2_words + 1;
    struct table *larger =
        calloc(1, sizeof *larger + ((size_t)1 << log2_words) * sizeof *larger->words);
    if (larger == NULL)
        return 0;
    larger->before = old;
    larger->log2_words = log2_words;
    for (size_t i = 0; old != NULL && i < num_words(old); i++) {
        const uintptr_t word = atomic_load_explicit(&old->words[i], memory_order_relaxed);
        if (word != 0)
            put(larger, word);
    }
    atomic_store_explicit(&table, larger, memory_order_release);
    return 1;
}

/* Under the lock: frees a place, and moves the words behind it whose way from their homes leads by
 * it. Each is in its new place before it leaves the old one. */
static void clear(struct table *words, size_t place)
{
    const size_t mask = num_words(words) - 1;
    for (size_t i = (place + 1) & mask;; i = (i + 1) & mask) {
        const uintptr_t word = atomic_load_explicit(&words->words[i], memory_order_relaxed);
        if (word == 0)
            break;
        if (((i - home_of(words, word)) & mask) < ((i - place) & mask))
            continue;
        atomic_store_explicit(&words->words[place], word, memory_order_release);
        place = i;
    }
    atomic_store_explicit(&words->words[place], 0, memory_order_release);
}

/* ---------------------------------------------------------------- objects */

/* Under the lock. Memory that is new holds no object: what is noted of its address was left by a
 * rank that ended without a word and whose process goes on, as the sim's does. */
static void forget(const void *address)
{
    struct belonging **link = &belongings;
    while (*link != NULL) {
        struct belonging *belonging = *link;
        if (belonging->owner != address && belonging->object.ptr != address) {
            link = &belonging->next;
            continue;
        }
        const uintptr_t word = word_of(belonging->object.kind, belonging->object.ptr);
        if (contains(current(), word)) {
            clear(current(), find(current(), word));
            num_objects--;
        }
        *link = belonging->next;
        free(belonging);
    }
}

static struct belonging *new_belonging(enum weft__kind kind, const void *object, const void *owner)
{
    struct belonging *belonging = malloc(sizeof *belonging);
    if (belonging != NULL)
        *belonging =
            (struct belonging){.object = {kind, (void *)(uintptr_t)object}, .owner = owner};
    return belonging;
}

weft_result weft__object_add(enum weft__kind kind, const void *object, const void *owner)
{
    struct belonging *belonging = owner == NULL ? NULL : new_belonging(kind, object, owner);
    pthread_mutex_lock(&mutex);
    forget(object);
    const int has_room = (owner == NULL || belonging != NULL) && grow();
    if (has_room && !contains(current(), word_of(kind, object))) {
        put(current(), word_of(kind, object));
        num_objects++;
    }
    if (has_room && belonging != NULL) {
        belonging->next = belongings;
        belongings = belonging;
    }
    pthread_mutex_unlock(&mutex);
    if (has_room)
        return WEFT_OK;
    free(belonging);
    return weft__no_memory("no memory to note a %s", kinds[kind].type);
}

static struct belonging **find_belonging(enum weft__kind kind, const void *object)
{
    struct belonging **link = &belongings;
    while (*link != NULL && ((*link)->object.ptr != object || (*link)->object.kind != kind))
        link = &(*link)->next;
    return link;
}

void weft__object_remove(enum weft__kind kind, const void *object)
{
    pthread_mutex_lock(&mutex);
    struct belonging **link = find_belonging(kind, object);
    struct belonging *belonging = *link;
    if (belonging != NULL)
        *link = belonging->next;
    clear(current(), find(current(), word_of(kind, object)));
    num_objects--;
    pthread_mutex_unlock(&mutex);
    free(belonging);
}

int weft__object_exists(enum weft__kind kind, const void *object)
{
    const uintptr_t word = word_of(kind, object);
    if (object == NULL || (uintptr_t)object % ALIGNMENT != 0)
        return 0;
    if (contains(current(), word))
        return 1;
    pthread_mutex_lock(&mutex);
    const int is_found = contains(current(), word);
    pthread_mutex_unlock(&mutex);
    return is_found;
}

weft_result weft__object_check(enum weft__kind kind, const void *object, const char *argument)
{
    if (weft__object_exists(kind, object))
        return WEFT_OK;
    if (object == NULL)
        return weft__invalid("%s is NULL, must not be", argument);
    return weft__invalid("%s is %p, which is no %s: it must come from %s, and not have been %s",
                         argument, object, kinds[kind].type, kinds[kind].maker,
                         kind == WEFT__KIND_MEMORY ? "freed"
                                                   : "destroyed, alone or with its owner");
}

weft_result weft__operands_check(const weft_comm *comm, const weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    return weft__object_check(WEFT__KIND_STREAM, stream, "stream");
}

struct weft__object weft__object_of(const void *owner)
{
    pthread_mutex_lock(&mutex);
    const struct belonging *belonging = belongings;
    while (belonging != NULL && belonging->owner != owner)
        belonging = belonging->next;
    const struct weft__object none = {.ptr = NULL};
    const struct weft__object found = belonging == NULL ? none : belonging->object;
    pthread_mutex_unlock(&mutex);
    return found;
}

const void *weft__object_owner(enum weft__kind kind, const void *object)
{
    pthread_mutex_lock(&mutex);
    const struct belonging *belonging = *find_belonging(kind, object);
    const void *owner = belonging == NULL ? NULL : belonging->owner;
    pthread_mutex_unlock(&mutex);
    return owner;
}
