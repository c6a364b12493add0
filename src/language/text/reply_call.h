/*
 * One call of a function as most models write it, read byte by byte: a JSON object with the members
 * name and arguments (or parameters) in any order; one whose only member is the function's name; or
 * the arguments alone.
 */
#ifndef SKV_TEXT_REPLY_CALL_H
#define SKV_TEXT_REPLY_CALL_H

#include "base/buf.h"
#include "text/json_scan.h"

typedef enum skv_call_field {
    SKV_CALL_NO_FIELD,
    SKV_CALL_NAME,
    SKV_CALL_ARGUMENTS,
    SKV_CALL_ID,  /* where the form has one */
    SKV_CALL_NOTE /* type: read over */
} skv_call_field;

typedef struct skv_reply_call {
    const char *const *names; /* borrowed, [n_names]: the functions that there are; NULL: any */
    size_t n_names;
    skv_json_scan scan;
    skv_buf raw;  /* as it is written, with the mark in front */
    skv_buf word; /* the name of a member */
    skv_buf name; /* of the function */
    skv_buf id;   /* that the model gave the call; empty: none */
    skv_buf args; /* of the arguments, what was not told yet */
    skv_call_field field;
    bool has_name, has_args; /* both: as far as they have come */
    bool keyed;              /* the member's name is the function's */
    bool in_args;
    bool quoted;       /* the arguments are JSON in a text, which `args` holds until it ends */
    bool needs_args;   /* without a member of arguments it is no call */
    bool saw_args;     /* there is one */
    bool wants_id;     /* a member "id" is the call's: it is told when the call is whole */
    size_t n_outer;    /* objects around the arguments: 1; 0 where they come alone */
    bool told;         /* the name was told */
    size_t n_raw_told; /* bytes of raw that were told in some form */
    bool failed;       /* no memory was there for a text that is gone */
} skv_reply_call;

typedef enum skv_call_state { SKV_CALL_MORE, SKV_CALL_ENDED, SKV_CALL_BAD } skv_call_state;

/** `empty` has the maximum of its texts, and whom to ask for their memory. */
void skv_reply_call_init(skv_reply_call *call, const char *const *names, size_t n_names,
                         const skv_buf *empty);
void skv_reply_call_release(skv_reply_call *call);
/** Empties one of its texts. */
void skv_reply_call_clear(skv_reply_call *call, skv_buf *text);
/** Begins a new call. Its bytes since the mark are in `raw` already. */
void skv_reply_call_begin(skv_reply_call *call, bool keyed);
/** Begins a call whose name is known; its arguments follow. */
void skv_reply_call_begin_named(skv_reply_call *call, const char *name, size_t n);
/** Sets the model's own id, if it is one that clients accept. */
void skv_reply_call_set_id(skv_reply_call *call, const char *id, size_t n);
/** True when only the bracket that closes the call is missing. */
bool skv_reply_call_lacks_bracket(const skv_reply_call *call);
/** True when the request has a function of that name. */
bool skv_reply_call_knows(const skv_reply_call *call, const char *name, size_t n);
/** Reads a byte and extends `args` or `name`. BAD: the text is not a call. */
skv_call_state skv_reply_call_byte(skv_reply_call *call, char byte);

#endif
