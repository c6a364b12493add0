/* What the generators of hostile inputs share: see hostile.h. */
#ifndef SKV_TESTS_HOSTILE_MAKER_H
#define SKV_TESTS_HOSTILE_MAKER_H

#include "hostile.h"

typedef struct hostile_maker {
    skv_rng rng;
    double scale;
    skv_buf *to; /* borrowed: where the text goes */
    size_t room; /* bytes: what a generator shall not exceed by much */
    hostile_case *made;
} hostile_maker;

typedef void hostile_make_fn(hostile_maker *m);

typedef struct hostile_shape {
    const char *name;
    hostile_make_fn *make;
    unsigned weight;
} hostile_shape;

/* One table a kind, ended by an empty row. */
extern const hostile_shape hostile_gbnf_shapes[];
extern const hostile_shape hostile_schema_shapes[];
extern const hostile_shape hostile_regex_shapes[];
extern const hostile_shape hostile_choice_shapes[];
extern const hostile_shape hostile_parts_shapes[];
extern const hostile_shape hostile_template_shapes[];
extern const hostile_shape hostile_history_shapes[];

/* ---- drawing ---- */

size_t hostile_below(hostile_maker *m, size_t n);
bool hostile_chance(hostile_maker *m, unsigned percent);
/** lo..hi, log-uniform; the scale shortens the range. */
size_t hostile_size(hostile_maker *m, size_t lo, size_t hi);
/** Near a limit as often as anywhere between 1 and twice the limit. */
size_t hostile_limit(hostile_maker *m, size_t limit);
/** How often something is repeated: small numbers, powers, and the neighbourhood of limits. */
uint64_t hostile_times(hostile_maker *m);

/* ---- writing ---- */

void hostile_put(hostile_maker *m, const char *format, ...) SKV_PRINTF(2, 3);
/** The text, n times. */
void hostile_fill(hostile_maker *m, const char *text, size_t n);
/** A name of about n_bytes letters that no other i gives. */
void hostile_name(hostile_maker *m, size_t i, size_t n_bytes);
/** True when there is no room left. */
bool hostile_full(const hostile_maker *m);
/** Bytes from here to `end`; 0 behind it. */
size_t hostile_left(const hostile_maker *m, size_t end);
/** "*", "{3,7}" or nothing. */
void hostile_suffix(hostile_maker *m);

/* ---- references ---- */

typedef enum hostile_net {
    HOSTILE_NET_NONE,
    HOSTILE_NET_ONE,   /* all to the last */
    HOSTILE_NET_CHAIN, /* to the next; the last to none */
    HOSTILE_NET_CYCLE, /* to the next; the last to the first */
    HOSTILE_NET_TREE,
    HOSTILE_NET_DOWN, /* to random later ones */
    HOSTILE_NET_ANY,
    HOSTILE_NETS
} hostile_net;

/** Which of n things the i-th refers to; n: none. */
size_t hostile_target(hostile_maker *m, hostile_net net, size_t i, size_t n);

/* ---- pieces that several kinds use ---- */

/** A random expression, nested `depth` deep, within a share of the room; refs: [n_rules] names of
 * n_name bytes, 0: a regular expression, which has none. */
typedef struct hostile_rules {
    hostile_net net;
    size_t i, n_rules, n_name;
} hostile_rules;
void hostile_expr(hostile_maker *m, const hostile_rules *rules, size_t depth, size_t n_bytes);
/** A random JSON value. */
void hostile_value(hostile_maker *m, size_t depth, size_t n_bytes);
/** A pattern of any shape that regexes have, as the inside of a JSON string. */
void hostile_pattern(hostile_maker *m, size_t n_bytes);
/** A schema of any shape. */
void hostile_schema(hostile_maker *m, size_t n_bytes);

#endif
