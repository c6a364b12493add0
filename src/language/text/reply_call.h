/*
 * What the readers of replies share: the marks that their formats are made of, and one call of a
 * function as models write it, a JSON object with the members name and arguments (or parameters) in
 * any order, read byte by byte.
 */
#ifndef SKV_TEXT_REPLY_CALL_H
#define SKV_TEXT_REPLY_CALL_H

#include "base/buf.h"
#include "text/json_scan.h"

#define SKV_MARK_THINK "<think>"
#define SKV_MARK_THOUGHT "</think>"
#define SKV_MARK_CALL "<tool_call>"      /* HERMES */
#define SKV_MARK_CALLED "</tool_call>"   /* HERMES */
#define SKV_MARK_PYTHON "<|python_tag|>" /* LLAMA3: may stand before a call */

typedef enum skv_call_field {
    SKV_CALL_NO_FIELD,
    SKV_CALL_NAME,
    SKV_CALL_ARGUMENTS,
    SKV_CALL_NOTE /* type, id: read over */
} skv_call_field;

typedef struct skv_reply_call {
    const char *const *names; /* borrowed, [n_names]: the functions that there are; NULL: any */
    size_t n_names;
    skv_json_scan scan;
    skv_buf raw;  /* as it is written, with the mark in front */
    skv_buf word; /* the name of a member */
    skv_buf name; /* of the function */
    skv_buf args; /* of the arguments, what was not told yet */
    skv_call_field field;
    bool has_name, has_args; /* both: as far as they have come */
    bool in_args;
    bool told;         /* the name was told */
    size_t n_raw_told; /* bytes of raw that were told in some form */
} skv_reply_call;

typedef enum skv_call_state { SKV_CALL_MORE, SKV_CALL_ENDED, SKV_CALL_BAD } skv_call_state;

void skv_reply_call_init(skv_reply_call *call, const char *const *names, size_t n_names,
                         size_t max_bytes);
void skv_reply_call_release(skv_reply_call *call);
/** A new call behind a mark. */
void skv_reply_call_begin(skv_reply_call *call, const char *mark, size_t n);
/** BAD: it is not the beginning of a call. `args` and `name` grow. */
skv_call_state skv_reply_call_byte(skv_reply_call *call, char byte);

#endif
