/*
 * An answer of a chat in parts: thoughts, texts and calls, in the order in which they came. Every
 * dialect writes its JSON from these, at once or as they grow.
 */
#ifndef SKV_SERVER_REPLY_PARTS_H
#define SKV_SERVER_REPLY_PARTS_H

#include "request/request_input.h"
#include "skv/reply.h"
#include "tools/custom_input.h"

typedef enum part_kind { PART_THOUGHT, PART_TEXT, PART_CALL } part_kind;

typedef struct reply_part {
    part_kind kind;
    skv_buf name;   /* of a call's function */
    skv_buf text;   /* or a call's arguments */
    char id[20];    /* letters and digits, without a dialect's prefix */
    skv_buf own_id; /* of a call: the model's; empty: none */
    bool whole;     /* the arguments of a call are */
    bool custom;    /* a call of a custom tool: `text` is its input */
    custom_input input;
    size_t n_namespace; /* bytes in front of "__" in the name: see tool_origin */
    bool begun;         /* the client knows of it */
    size_t n_told;      /* bytes of text that it knows */
} reply_part;

typedef struct reply_parts {
    exchange *ex;              /* borrowed */
    const tool_request *tools; /* borrowed */
    skv_reply *reader;         /* owned */
    reply_part *at;            /* owned, [n] */
    size_t n, room;
    size_t i_told;  /* everything before it was told to its end */
    size_t n_whole; /* calls */
    bool streams;   /* parts that were sent cannot be taken back */
    bool failed;    /* memory ran out */
} reply_parts;

/** Appends a call's id as clients get it: the model's own, or ours after the dialect's prefix. */
void reply_part_call_id(const reply_part *part, const char *prefix, skv_buf *out);

/** `options` but for tell and user, whose functions are `tools`; the parts may not move
 * afterwards. */
bool reply_parts_open(reply_parts *parts, exchange *ex, const tool_request *tools,
                      const skv_reply_options *options, bool streams);
void reply_parts_release(reply_parts *parts);
void reply_parts_push(reply_parts *parts, const char *text, size_t n, bool last);
/** Whether there is anything that the client does not know. */
bool reply_parts_have_news(const reply_parts *parts);

/** Appends `before` and, as a JSON string, the new part of the texts of one kind, and marks it
 * as told; false: nothing is new, and nothing is written. */
bool reply_parts_write(reply_parts *parts, part_kind kind, const char *before, skv_buf *out);

/** Appends the answer to a chat's messages as its client has it, and the next message: one of
 * the user, or results of the calls. The first text of these is `mark`. */
bool reply_parts_add_messages(const reply_parts *parts, const char *mark, json_t *messages,
                              api_error *error);

/* How a dialect tells parts one after the other. */
typedef struct part_writer {
    void (*begin)(void *user, skv_buf *out, const reply_part *part, size_t i);
    void (*more)(void *user, skv_buf *out, const reply_part *part, size_t i);
    void (*end)(void *user, skv_buf *out, const reply_part *part, size_t i);
} part_writer;

/** Tells the new parts: a part ends when another follows, or all has `ended`. */
void reply_parts_tell(reply_parts *parts, bool ended, const part_writer *writer, void *user,
                      skv_buf *out);

#endif
