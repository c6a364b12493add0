/*
 * Values of a template while it is rendered: the subset of Python's that chat templates can see.
 * Strings hold valid UTF-8 and count in code points. Everything lives in the rendering's arena;
 * only namespaces change after they were made.
 */
#ifndef SKV_TEXT_JINJA_VALUE_H
#define SKV_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/budget.h"

/*
 * Memory of one template or one rendering: pieces are taken one after another and all are given
 * back at once. Values of a rendering are never changed once they are visible to the template
 * (the sandbox forbids it), so nothing needs to be freed on its own. Blocks count in a budget.
 */

typedef struct skv_jblock skv_jblock;

typedef struct skv_jarena {
    skv_jblock *head;   /* owned; the newest block first */
    size_t n_bytes;     /* of all blocks, as the budget has them */
    skv_budget *budget; /* borrowed */
} skv_jarena;

void skv_jarena_init(skv_jarena *arena, skv_budget *budget);
void skv_jarena_release(skv_jarena *arena);
/** Keeps the arena's memory, which no longer counts in a budget; no more can be allocated. */
void skv_jarena_detach(skv_jarena *arena);
/** `count * size` zeroed bytes, 16-byte aligned; NULL beyond the budget or without memory. */
void *skv_jarena_take(skv_jarena *arena, size_t count, size_t size);

/* An operator is its characters packed into an integer: '/' | '/' << 8. */
#define SKV_JOP(a, b) ((unsigned)(a) | (unsigned)(b) << 8)

typedef enum skv_jkind {
    SKV_J_UNDEFINED,
    SKV_J_MISSING, /* inside the interpreter only: no such variable or argument */
    SKV_J_NONE,
    SKV_J_BOOL,
    SKV_J_INT,
    SKV_J_FLOAT,
    SKV_J_STRING,
    SKV_J_LIST,
    SKV_J_TUPLE,
    SKV_J_DICT,
    SKV_J_RANGE,
    SKV_J_VIEW,     /* dict.keys(), .values(), .items() */
    SKV_J_ITERATOR, /* the result of filters such as map: can be walked once */
    SKV_J_NAMESPACE,
    SKV_J_LOOP,
    SKV_J_MACRO,
    SKV_J_FUNCTION, /* a global function */
    SKV_J_METHOD    /* a function bound to a value */
} skv_jkind;

typedef struct skv_jmarks skv_jmarks;

typedef struct skv_jstr {
    const char *data;        /* borrowed from the arena or the template; not terminated */
    size_t size;             /* bytes */
    size_t n_chars;          /* code points */
    const skv_jmarks *marks; /* which of the bytes are data (jinja_mark.h); NULL: none */
} skv_jstr;

typedef struct skv_jlist skv_jlist;
typedef struct skv_jdict skv_jdict;
typedef struct skv_jrange skv_jrange;
typedef struct skv_jview skv_jview;
typedef struct skv_jiter skv_jiter;
typedef struct skv_jloop skv_jloop;
typedef struct skv_jmacro skv_jmacro;
typedef struct skv_jmethod skv_jmethod;
typedef struct skv_jreason skv_jreason;
typedef struct skv_jfunction skv_jfunction;

typedef struct skv_jv {
    uint8_t kind;   /* skv_jkind */
    uint8_t markup; /* of a string: marked safe, so that `+` and `%` escape the other side */
    union {
        bool b;
        int64_t i;
        double f;
        const skv_jstr *s;
        skv_jlist *list; /* lists and tuples */
        skv_jdict *dict; /* dicts and namespaces */
        const skv_jrange *range;
        const skv_jview *view;
        skv_jiter *iter;
        skv_jloop *loop;
        const skv_jmacro *macro;
        const skv_jfunction *function;
        const skv_jmethod *method;
        const skv_jreason *reason; /* of undefined: why, or NULL */
    } as;
} skv_jv;

struct skv_jlist {
    skv_jv *items;
    size_t n, capacity;
};

typedef struct skv_jpair {
    skv_jv key, value;
    uint64_t hash;
} skv_jpair;

/* Pairs in the order of insertion; an open-addressing index of pair numbers + 1 once it pays. */
struct skv_jdict {
    skv_jpair *pairs;
    size_t n, capacity;
    uint32_t *index;
    size_t n_index; /* a power of two, or 0 */
};

struct skv_jrange {
    int64_t start, stop, step;
    int64_t n;
};

typedef enum skv_jview_of { SKV_J_KEYS, SKV_J_VALUES, SKV_J_ITEMS } skv_jview_of;

struct skv_jview {
    const skv_jdict *dict;
    skv_jview_of of;
};

struct skv_jiter {
    const char *what;    /* Python's type name, for messages */
    const char *failure; /* the error on iteration, or NULL: it is not reported before */
    const skv_jlist *list;
    size_t at;
};

struct skv_jreason {
    const char *text;   /* a whole message, or NULL for "'OBJECT' has no attribute NAME" */
    const skv_jstr *of; /* the name that is not there */
    const char *object; /* the type of the object, or NULL for a variable */
};

static inline skv_jv skv_j_undefined(void)
{
    return (skv_jv){.kind = SKV_J_UNDEFINED};
}

static inline skv_jv skv_j_missing(void)
{
    return (skv_jv){.kind = SKV_J_MISSING};
}

static inline skv_jv skv_j_none(void)
{
    return (skv_jv){.kind = SKV_J_NONE};
}

static inline skv_jv skv_j_bool(bool b)
{
    return (skv_jv){.kind = SKV_J_BOOL, .as.b = b};
}

static inline skv_jv skv_j_int(int64_t i)
{
    return (skv_jv){.kind = SKV_J_INT, .as.i = i};
}

static inline skv_jv skv_j_float(double f)
{
    return (skv_jv){.kind = SKV_J_FLOAT, .as.f = f};
}

static inline bool skv_j_is_sequence(skv_jv v)
{
    return v.kind == SKV_J_LIST || v.kind == SKV_J_TUPLE;
}

static inline bool skv_j_is_number(skv_jv v)
{
    return v.kind == SKV_J_BOOL || v.kind == SKV_J_INT || v.kind == SKV_J_FLOAT;
}

/** True for bool and int, which Python treats alike in arithmetic; *i is the number. */
static inline bool skv_j_as_int(skv_jv v, int64_t *i)
{
    if (v.kind == SKV_J_BOOL) *i = v.as.b;
    if (v.kind == SKV_J_INT) *i = v.as.i;
    return v.kind == SKV_J_BOOL || v.kind == SKV_J_INT;
}

/** The name of a value's Python type: "str", "NoneType" ... */
const char *skv_j_type_name(skv_jv v);

/** Whether the string is this C string. */
bool skv_jstr_is(const skv_jstr *s, const char *text);
/** Code points of valid UTF-8. */
size_t skv_j_count_chars(const char *data, size_t size);
/** The byte offset of code point i <= n_chars. */
size_t skv_j_offset(const skv_jstr *s, size_t i);
/** Returns the byte offset of the character after the one at `at`. */
size_t skv_j_next_char(const skv_jstr *s, size_t at);
/** Python's str.isspace for one code point. */
bool skv_j_space(uint32_t code);

/*
 * Dicts with the order of insertion, keyed by any hashable value. Hashing and comparing count their
 * work in a budget; once that is exceeded results are meaningless.
 */

uint64_t skv_jdict_hash_text(const skv_jstr *text);
/** Hashes a key; false for values that Python cannot hash (lists, dicts). Equal numbers agree. */
bool skv_jdict_hash(skv_budget *budget, skv_jv key, uint64_t *hash);
/** The value of a key or NULL. */
const skv_jv *skv_jdict_find(skv_budget *budget, const skv_jdict *dict, skv_jv key, uint64_t hash);
/** Adds or replaces; false beyond the budget or without memory. */
bool skv_jdict_put(skv_jarena *arena, skv_jdict *dict, uint64_t hash, skv_jv key, skv_jv value);

/** Finds a text. */
const skv_jv *skv_jdict_get(skv_budget *budget, const skv_jdict *dict, const skv_jstr *key);

/** Python's == for hashable values; lists and dicts are compared by jinja_compare.c. */
bool skv_jdict_same_key(skv_budget *budget, skv_jv a, skv_jv b);

#endif
