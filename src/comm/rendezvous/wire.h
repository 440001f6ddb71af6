/* SPDX-License-Identifier: MIT */
/* Framing on the connections to the rendezvous: a frame is a type, a length and a body. Sockets
 * are nonblocking; both directions are buffered. The two directions of a wire are independent, so
 * that one thread may receive while others send under a lock. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "comm/calls.h"
#include "comm/failure/waits.h"
#include "comm/rendezvous/meeting_point.h"
#include "weft.h"

enum { WEFT__MAX_BLOB_BYTES = 1 << 20, WEFT__MAX_RANKS = 65536, WEFT__MAX_TEXT_BYTES = 512 };

#define WEFT__HELLO_MAGIC   UINT32_C(0x74666577) /* "weft" on the byte order of the ranks */
#define WEFT__HELLO_VERSION UINT32_C(9)

enum weft__frame_type {
    /* rank to rendezvous. */
    WEFT__FRAME_HELLO = 1, /* struct weft__hello */
    WEFT__FRAME_GATHER =
        2, /* struct weft__gather_header, then the blob, or why the rank has none */
    WEFT__FRAME_GOODBYE =
        3, /* struct weft__wait_list of those that have failed: the rank leaves in good order */
    WEFT__FRAME_GIVE_UP =
        4, /* struct weft__failure_notice: why the rank's communicator has failed */
    /* rendezvous to rank. */
    WEFT__FRAME_WELCOME = 5,    /* struct weft__identity of the process of the rendezvous */
    WEFT__FRAME_TABLE = 6,      /* struct weft__identity [num_ranks]: all have met */
    WEFT__FRAME_GATHERED = 7,   /* struct weft__gather_header, then the blobs or a text */
    WEFT__FRAME_RANK_STATE = 8, /* struct weft__rank_state_notice */
    WEFT__FRAME_FAILED = 9,     /* struct weft__failure_notice */
    /* rank to rendezvous to rank. */
    WEFT__FRAME_QUESTION = 10, /* struct weft__question */
    WEFT__FRAME_ANSWER = 11,   /* struct weft__answer */
    /* either way. */
    WEFT__FRAME_ALIVE = 12, /* without a body (comm/rendezvous/heartbeat.h) */
    /* rank to rendezvous. */
    WEFT__FRAME_ABSENCE =
        13, /* struct weft__absence: the rank will not come to another communicator */
    WEFT__FRAME_STANDING = 14, /* struct weft__called [n]: where a waiting rank stands */
    WEFT__FRAME_EXIT = 15,     /* struct weft__ending: the rank's process ends, without a goodbye */
    /* rendezvous to each new connection, before the rank says anything: a rank that receives
     * anything else has reached another program, and has done it no harm. */
    WEFT__FRAME_GREETING = 16, /* struct weft__greeting */
    /* Observers (comm/rendezvous/observers.h) to rendezvous, rendezvous to observer, and rank to
     * rendezvous to observer. */
    WEFT__FRAME_OBSERVE = 17, /* struct weft__observation */
    WEFT__FRAME_ROSTER = 18,  /* struct weft__roster, then struct weft__roster_entry [num_ranks] */
    WEFT__FRAME_REPORT = 19,  /* struct weft__report: the answer to an observer's question */
    WEFT__NUM_FRAME_TYPES
};

enum { WEFT__HOST_NAME_BYTES = 32 }; /* longer names are cut */

/* The facts about a process that the others must know. */
struct weft__identity {
    int32_t pid;
    uint32_t uid;
    uint64_t host_key;     /* equal: can share memory */
    uint64_t node_key;     /* equal: same node */
    uint64_t cores_key;    /* equal: may run on the same cores, be they in two containers */
    uint64_t socket_id[2]; /* names the socket on which it takes file descriptors */
    char host[WEFT__HOST_NAME_BYTES]; /* as the host calls itself */
};

struct weft__greeting {
    uint32_t magic, version;
};

struct weft__hello {
    uint32_t magic, version;
    uint8_t nonce[WEFT__NONCE_BYTES];
    uint64_t key; /* which communicator of those that meet here */
    int32_t rank, num_ranks, num_nodes;
    uint32_t timeout_ms;
    uint32_t heartbeat_ms; /* how long either end may be silent; 0: for ever */
    uint32_t unused;
    struct weft__identity identity;
};

struct weft__gather_header {
    uint64_t sequence;
    uint64_t blob_bytes;
    int32_t result;      /* a weft_result; unless WEFT_OK a text follows in place of blobs */
    int32_t failed_rank; /* GATHERED: whose own result it is, or WEFT__NOBODY: that of all */
    struct weft__call_step step;
};

/* The end of a connection without a goodbye. */
struct weft__ending {
    enum {
        WEFT__ENDED_IN_SILENCE, /* killed, as far as is known */
        WEFT__ENDED_BY_EXIT     /* the process said that it returns from main, or calls exit */
    } kind;
    int32_t status; /* of the process, WEFT__ENDED_BY_EXIT */
};

struct weft__rank_state_notice {
    int32_t rank;
    int32_t state; /* enum weft__rank_state */
    int32_t pid;
    uint32_t silent_ms; /* WEFT__RANK_DEAD: for so long, hence taken for dead; 0: not silent */
    struct weft__ending ending; /* of a rank that was not silent */
};

struct weft__failure_notice {
    int32_t result;
    int32_t rank; /* the culprit or -1 */
    char text[WEFT__MAX_TEXT_BYTES];
};

/* Why a rank will not come to a communicator that ranks make out of another one. */
struct weft__absence {
    uint64_t key; /* as in its hello, which will not come */
    int32_t rank, num_ranks;
    uint32_t timeout_ms;
    struct weft__failure_notice why;
};

/* Whom do you wait for? */
struct weft__question {
    int32_t asker; /* filled in by the rendezvous */
    int32_t asked;
    uint64_t number;        /* of the question, among the asker's */
    struct weft__wait wait; /* the asker's wait for the asked rank */
};

struct weft__answer {
    int32_t asker, asked;
    uint64_t number;
    struct weft__wait_list waits;
};

/* In place of a hello: who sends it is no rank, and asks how all ranks are that meet by it. */
struct weft__observation {
    uint32_t magic, version;
    uint8_t nonce[WEFT__NONCE_BYTES];
};

enum weft__presence { WEFT__ABSENT, WEFT__PRESENT, WEFT__LEFT, WEFT__DEAD };

/* A communicator, for an observer. */
struct weft__roster {
    uint64_t key;
    int32_t num_ranks;     /* 0: there is no communicator */
    int32_t have_met;      /* 1: those that are present have been asked for a report */
    int32_t num_following; /* rosters */
    int32_t unused;
};
struct weft__roster_entry {
    int32_t presence; /* enum weft__presence */
    int32_t pid;
    char host[WEFT__HOST_NAME_BYTES];
};

/* How a rank is. */
struct weft__report {
    struct weft__answer answer;           /* whom it waits for */
    uint64_t key;                         /* of its communicator; filled in by the rendezvous */
    uint64_t count, held_ms;              /* struct weft__last_call, as `call` */
    uint64_t heap_used_bytes, heap_bytes; /* 0 before the heap is up, as `machine` and `device` */
    int32_t call;
    int32_t device;
    int32_t result; /* weft_result of the communicator, and why: "" if WEFT_OK */
    char machine[12];
    char error[WEFT__MAX_TEXT_BYTES];
};

struct weft__frame_header {
    uint32_t type;
    uint32_t unused;
    uint64_t body_bytes;
};

/* An encoded frame; several wires may queue the same one. Single-threaded reference count. */
struct weft__message {
    int32_t num_references;
    size_t num_bytes; /* of header and body */
    struct weft__frame_header header;
    unsigned char body[];
};

/* With one reference, the caller's; the body is the concatenation of both parts, of which the
 * second may be NULL: then its bytes are zero, for the caller to fill. NULL: no memory. */
struct weft__message *weft__message_create(enum weft__frame_type type, const void *part,
                                           size_t part_bytes, const void *more, size_t more_bytes);
void weft__message_release(struct weft__message *message);

struct weft__queued_message;

struct weft__wire {
    int fd;
    uint64_t max_body_bytes; /* of received frames; a longer one is garbage */
    unsigned char *in;
    size_t in_begin, in_end, in_capacity;
    uint64_t num_received; /* bytes */
    struct weft__queued_message *out_first, *out_last;
    struct weft__queued_message *spare; /* for the case that there is no memory for another */
    size_t out_sent_bytes;              /* of out_first */
};

struct weft__frame {
    enum weft__frame_type type;
    const unsigned char *body; /* valid until the next call on the wire */
    size_t body_bytes;
};

enum weft__wire_result {
    WEFT__WIRE_OK,
    WEFT__WIRE_EMPTY,   /* nothing more for now */
    WEFT__WIRE_CLOSED,  /* by the other side, or broken */
    WEFT__WIRE_GARBAGE, /* not the protocol */
    WEFT__WIRE_NO_MEMORY
};

/* Takes over fd. */
void weft__wire_init(struct weft__wire *wire, int fd, uint64_t max_body_bytes);
void weft__wire_close(struct weft__wire *wire);
/* From now on a message can be sent without memory, if none else waits to be sent. */
enum weft__wire_result weft__wire_keep_spare(struct weft__wire *wire);

/* Takes a reference of its own, and sends what the socket accepts. */
enum weft__wire_result weft__wire_send(struct weft__wire *wire, struct weft__message *message);
enum weft__wire_result weft__wire_flush(struct weft__wire *wire);
static inline int weft__wire_has_output(const struct weft__wire *wire)
{
    return wire->out_first != NULL;
}

/* The next complete frame, reading from the socket as needed. */
enum weft__wire_result weft__wire_receive(struct weft__wire *wire, struct weft__frame *frame);

/* Nonblocking, close on exec, no delay, keepalive. */
weft_result weft__socket_prepare(int fd);
