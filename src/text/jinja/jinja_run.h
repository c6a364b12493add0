/*
 * One rendering: its memory, its fuel, and how it fails.
 *
 * Functions of the interpreter return values and record errors here: after the first failure
 * `status` is not SKV_OK, every further result is meaningless, and callers return as soon as
 * they look (they must look before they loop or use what they got).
 */
#ifndef SKV_TEXT_JINJA_RUN_H
#define SKV_TEXT_JINJA_RUN_H

#include "base/buf.h"
#include "base/fail.h"
#include "text/jinja/jinja_ast.h"
#include "text/jinja/jinja_dict.h"

typedef struct skv_jvar {
    uint32_t sym;
    skv_jv value;
} skv_jvar;

/* Scopes stay alive until the rendering ends, because macros keep the one they were made in. */
typedef struct skv_jscope {
    struct skv_jscope *parent;
    skv_jvar *vars;
    size_t n, capacity;
} skv_jscope;

typedef struct skv_jrun {
    const skv_jinja *t;
    skv_jarena memory;
    size_t steps, steps_max;
    unsigned depth, depth_max;
    size_t text_max; /* bytes of any one text that is being put together, and of the output */
    int64_t now;     /* seconds since 1970 for strftime_now; 0 asks the system */
    skv_jscope *scope;
    skv_buf *out;
    const skv_jdict *vars; /* what the caller passed */
    uint32_t line;         /* of the node being evaluated */
    unsigned loop_depth;
    enum { SKV_JUMP_NONE, SKV_JUMP_BREAK, SKV_JUMP_CONTINUE } jump;
    skv_status status;
    skv_error *err;
} skv_jrun;

/* The arguments of a call, after evaluation. */
typedef struct skv_jcall {
    skv_jv self; /* what a method or filter works on */
    const skv_jv *items;
    size_t n;
    const skv_jpair *keywords; /* the keys are strings */
    size_t n_keywords;
    char what[96]; /* "filter 'join'", for messages */
} skv_jcall;

typedef skv_jv skv_jfn(skv_jrun *r, const skv_jcall *call);

struct skv_jfunction {
    const char *name;
    skv_jfn *fn; /* NULL: known in Python, not supported here */
};

struct skv_jmethod {
    skv_jv self;
    const char *name;
    skv_jfn *fn;
    const skv_jreason *refused; /* the sandbox or this interpreter does not allow it */
};

struct skv_jmacro {
    const skv_jnode *node;
    skv_jscope *scope; /* where it was defined */
};

/** Records the first failure; gives undefined. */
skv_jv skv_j_fail(skv_jrun *r, skv_status status, const char *format, ...) SKV_PRINTF(3, 4);
static inline bool skv_j_ok(const skv_jrun *r)
{
    return r->status == SKV_OK;
}
/** Takes n steps of fuel; false when they run out. */
bool skv_j_spend(skv_jrun *r, size_t n);
/** Fuel for work on n bytes or elements inside one operation. */
bool skv_j_spend_bytes(skv_jrun *r, size_t n);
/** One level of recursion more; false, with nothing to leave, when there are too many. */
bool skv_j_enter(skv_jrun *r);
void skv_j_leave(skv_jrun *r);
/** Zeroed memory of the rendering, or NULL and a failure that names the limit. */
void *skv_j_take(skv_jrun *r, size_t count, size_t size);

/* Making values. */
skv_jv skv_j_string(skv_jrun *r, const char *data, size_t size);  /* copies */
skv_jv skv_j_view_of(skv_jrun *r, const char *data, size_t size); /* borrows from the arena */
skv_jv skv_j_text_value(skv_jrun *r, const char *text);
/** Copies the text put together in `buf` and releases it; fails if it hit its maximum. */
skv_jv skv_j_from_buf(skv_jrun *r, skv_buf *buf);
void skv_j_buf_init(const skv_jrun *r, skv_buf *buf);
skv_jv skv_j_list(skv_jrun *r, skv_jkind kind, size_t capacity);
bool skv_j_push(skv_jrun *r, skv_jlist *list, skv_jv item);
skv_jv skv_j_pair(skv_jrun *r, skv_jv a, skv_jv b);
skv_jv skv_j_dict(skv_jrun *r);
/** Python's d[key] = value; a key that cannot be hashed fails. */
bool skv_j_put(skv_jrun *r, skv_jdict *dict, skv_jv key, skv_jv value);
skv_jv skv_j_iterator(skv_jrun *r, const char *what, skv_jv list);
/** Undefined, with what will be said if it is used: a name that `object` does not have. */
skv_jv skv_j_no_attribute(skv_jrun *r, const skv_jstr *name, const char *object);
skv_jv skv_j_undefined_text(skv_jrun *r, const char *text);
/** Fails with that reason. */
skv_jv skv_j_fail_undefined(skv_jrun *r, skv_jv undefined);

/* Arguments: `out[i]` gets the i-th of `names`, SKV_J_MISSING where it is not given. */
bool skv_j_bind(skv_jrun *r, const skv_jcall *call, const char *const *names, size_t n_names,
                size_t n_required, skv_jv *out);
bool skv_j_arg_int(skv_jrun *r, const skv_jcall *call, skv_jv v, int64_t otherwise, int64_t *out);

#endif
