/*
 * Values of a template while it is rendered: Python's, as far as chat templates can see them.
 * Strings hold valid UTF-8 and count in code points. Everything lives in the rendering's arena;
 * only namespaces change after they were made.
 */
#ifndef SKV_TEXT_JINJA_VALUE_H
#define SKV_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Operators are told apart by their characters packed into an integer: '/' | '/' << 8. */
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
    SKV_J_ITERATOR, /* what filters such as map give: can be walked once */
    SKV_J_NAMESPACE,
    SKV_J_LOOP,
    SKV_J_MACRO,
    SKV_J_FUNCTION, /* a global function */
    SKV_J_METHOD    /* a function bound to a value */
} skv_jkind;

typedef struct skv_jstr {
    const char *data; /* borrowed from the arena or the template; not terminated */
    size_t size;      /* bytes */
    size_t n_chars;   /* code points */
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
    const char *failure; /* what walking it says, or NULL: errors wait until then */
    const skv_jlist *list;
    size_t at;
};

struct skv_jreason {
    const char *text;   /* a whole message, or NULL for "'OBJECT' has no attribute NAME" */
    const skv_jstr *of; /* the name that is not there */
    const char *object; /* the type of what was asked, or NULL for a variable */
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

/** True for bool and int, which Python treats alike in arithmetic; *i is the number. */
static inline bool skv_j_as_int(skv_jv v, int64_t *i)
{
    if (v.kind == SKV_J_BOOL) *i = v.as.b;
    if (v.kind == SKV_J_INT) *i = v.as.i;
    return v.kind == SKV_J_BOOL || v.kind == SKV_J_INT;
}

/** The name of a value's Python type: "str", "NoneType" ... */
const char *skv_j_type_name(skv_jv v);

#endif
