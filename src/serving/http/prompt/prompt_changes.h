/*
 * Changes to prompts. The operator asks for most of them, so that more of each prompt equals an
 * earlier one: lines of system text that differ in every request leave it, tools get one order, and
 * thoughts stay in the history. Every response tells which were made. A function that returns false
 * needed memory or work that the budget does not have.
 */
#ifndef SKV_SERVER_PROMPT_CHANGES_H
#define SKV_SERVER_PROMPT_CHANGES_H

#include <jansson.h>

#include "base/buf.h"
#include "skv/serve.h"
#include "skv/text.h"

/* The changes made to a request's prompts. */
typedef struct prompt_report {
    size_t n_stripped, n_kept; /* lines of system text, and thoughts */
    bool sorted;               /* tools and schemas */
    const char *effort; /* that the template got instead of the request's; NULL: nothing else */
} prompt_report;

/** "strip=1, sort=tools, keep-thoughts=2, effort=high"; "": nothing. */
void prompt_report_tell(const prompt_report *report, skv_buf *out);

typedef struct line_pattern line_pattern;

/** Reads a pattern, or the name of one; false: `error` (of SKV_ERROR_TEXT_MAX bytes) tells why. */
bool line_pattern_open(const char *text, line_pattern **out, char *error);
void line_pattern_free(line_pattern *pattern);
/** Takes the lines in which it matches out of the texts of system messages; adds to *n_lines. */
bool line_pattern_strip(const line_pattern *pattern, skv_budget *budget, json_t *messages,
                        size_t *n_lines);

/** The same tools in the order of their names, owned; NULL: no memory. */
json_t *prompt_order_tools(const json_t *tools);

/* The chat template's output for a request. */
typedef struct rendered_text {
    skv_buf text;
    skv_text_marks data; /* owned; which of it is the client's; counts until the request ends */
    bool continues;      /* the answer goes on with the last message */
    skv_pin pins[SKV_JOB_PINS]; /* [n_pins]: the parts that stay in the prefix cache */
    size_t n_pins;
} rendered_text;

/* ---- prompt_pins.c ---- */

/** Returns the lifetime that a mark (`cache_control`) asks for; 0: it is not a mark. */
double prompt_mark_seconds(const json_t *mark);
/** Marks a message, unless its own mark lasts as long. */
void prompt_mark_longer(json_t *message, json_t *mark);
/** Finds rendered->pins from the marks of the messages that were rendered; false: the budget is
 * used up. */
bool prompt_find_pins(skv_budget *budget, const json_t *messages, rendered_text *rendered);

/* Thoughts that a template has left out, on their way back into its text. */
typedef struct kept_thoughts {
    json_t *contents; /* owned: of these messages before, false for others; NULL: there are none */
    char mark[48];    /* stands in front of such a content, with its number after it */
} kept_thoughts;

/** Looks for thoughts of the assistant that the text lacks and puts marks in their places, so
 * that the messages have to be rendered again; out->contents NULL: none is lost. `draw`: an
 * unpredictable number. `out` has to go to prompt_unmark_thoughts, whatever is returned. */
bool prompt_find_lost_thoughts(skv_budget *budget, json_t *messages, const rendered_text *rendered,
                               uint64_t draw, kept_thoughts *out);
/** Puts the thoughts where the marks stand in the text that was rendered again, between <think>
 * and </think>; adds to *n_kept. */
bool prompt_put_thoughts(skv_budget *budget, const json_t *messages, const kept_thoughts *kept,
                         rendered_text *rendered, size_t *n_kept);
/** Restores the contents; releases `kept`. */
void prompt_unmark_thoughts(json_t *messages, kept_thoughts *kept);

#endif
