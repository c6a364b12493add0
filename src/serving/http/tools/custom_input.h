/*
 * The text that a custom tool is called with. Models write every call with JSON arguments, so such
 * a tool is a function with one text, {"input": "..."} (tool_request.c). Clients get the text
 * itself, as it arrives.
 */
#ifndef SKV_SERVER_CUSTOM_INPUT_H
#define SKV_SERVER_CUSTOM_INPUT_H

#include <stdint.h>

#include "base/buf.h"

#define CUSTOM_INPUT_NAME "input"

typedef enum custom_input_state {
    CUSTOM_OUTSIDE, /* between strings */
    CUSTOM_STRING,  /* inside one that is not the text */
    CUSTOM_TEXT,
    CUSTOM_DONE
} custom_input_state;

typedef struct custom_input {
    custom_input_state state;
    skv_buf raw;  /* the arguments, until the text is found */
    size_t depth; /* of objects and arrays */
    char key[sizeof CUSTOM_INPUT_NAME];
    size_t n_key;   /* bytes of the last string, at most one more than fit */
    bool expects;   /* the value of the member is next */
    bool escaped;   /* a backslash was read */
    size_t n_hex;   /* digits of \uXXXX that are missing */
    uint32_t code;  /* of them, so far */
    uint32_t first; /* the first half of a pair; 0: none */
} custom_input;

/** `raw` is empty and becomes the input's. */
void custom_input_init(custom_input *in, skv_buf raw);
void custom_input_release(custom_input *in);
/** Takes more of the arguments and appends the new part of the text. */
void custom_input_push(custom_input *in, const char *json, size_t n, skv_buf *out);
/** The arguments are whole. Where they had no such text, they are the text. */
void custom_input_end(custom_input *in, skv_buf *out);

#endif
