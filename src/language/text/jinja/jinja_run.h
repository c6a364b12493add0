/*
 * One rendering: its memory, its fuel, and how it fails.
 *
 * Functions of the interpreter return values and record errors here: after the first failure
 * `status` is not SKV_OK and all further results are meaningless. Callers must check it before they
 * loop or use a result, and then return.
 */
#ifndef SKV_TEXT_JINJA_RUN_H
#define SKV_TEXT_JINJA_RUN_H

#include <jansson.h>

#include "base/buf.h"
#include "base/fail.h"
#include "skv/text.h"
#include "text/jinja/jinja_ast.h"
#include "text/jinja/jinja_mark.h"

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

/* Beyond this many levels of a budget the interpreter does not go: its stack would not last. */
enum { SKV_J_LEVELS_MAX = 64, SKV_J_CALLS_A_LEVEL = 3 };

/*
 * How functions are found by name. A rendering is given these, because some functions call others
 * by name: map calls filters, select calls tests, str.format reads attributes.
 */
typedef struct skv_jnames {
    /* Each gives NULL for an unknown name, and a function with `fn` NULL for one that jinja2 or
     * Python has and this interpreter does not. */
    const skv_jfunction *(*global)(const skv_jstr *name);
    const skv_jfunction *(*filter)(const skv_jstr *name);
    const skv_jfunction *(*test)(const skv_jstr *name);
    const skv_jfunction *(*string_method)(const skv_jstr *name);
} skv_jnames;

typedef struct skv_jrun {
    const skv_jinja *t;
    const skv_jnames *names; /* borrowed: skv_jbuiltin_names */
    skv_jarena memory;
    skv_budget *budget; /* borrowed */
    unsigned depth;     /* of the interpreter's own recursion, in skv_j_enter */
    int64_t now;        /* seconds since 1970 for strftime_now; 0 asks the system */
    skv_jscope *scope;
    skv_jout *out;
    const skv_jdict *vars;   /* passed by the caller */
    skv_text_piece own_mark; /* encloses the template's own text inside variables; n 0: there is
                              * none */
    uint32_t line;           /* of the node being evaluated */
    char what[96];           /* the last result of skv_j_what */
    enum { SKV_JUMP_NONE, SKV_JUMP_BREAK, SKV_JUMP_CONTINUE } jump;
    skv_status status;
    skv_error *err;
} skv_jrun;

typedef enum skv_jcallee { SKV_J_CALLS_FUNCTION, SKV_J_CALLS_FILTER, SKV_J_CALLS_TEST } skv_jcallee;

/* The arguments of a call, after evaluation. */
typedef struct skv_jcall {
    skv_jv self; /* the operand of a method or filter */
    const skv_jv *items;
    size_t n;
    const skv_jpair *keywords; /* the keys are strings */
    size_t n_keywords;
    skv_jcallee callee;
    unsigned how;      /* skv_jfunction's */
    const skv_jv *arg; /* bound: one for each of skv_jfunction's args; SKV_J_MISSING: not given */
    const char *name;  /* of the callee, for messages: skv_j_what */
} skv_jcall;

typedef skv_jv skv_jfn(skv_jrun *r, const skv_jcall *call);

struct skv_jfunction {
    const char *name;
    skv_jfn *fn;  /* NULL: known in Python, not supported here */
    unsigned how; /* which one it is of those that share fn */
    /* Its arguments, "!old !new count": "!" marks those that must be given, "-" has no name. NULL:
     * fn reads the call itself. */
    const char *args;
};

enum { SKV_J_ARGS_MAX = 4 };

struct skv_jmethod {
    skv_jv self;
    const skv_jfunction *function;
};

struct skv_jmacro {
    skv_jv (*call)(skv_jrun *r, const skv_jmacro *macro, const skv_jcall *call);
    const skv_jnode *node;
    skv_jscope *scope; /* where it was defined */
};

/** Records the first failure; gives undefined. */
skv_jv skv_j_fail(skv_jrun *r, skv_status status, const char *format, ...) SKV_PRINTF(3, 4);
/** Describes the callee for a message: "filter 'join'", "join()". Valid until the next call. */
const char *skv_j_what(skv_jrun *r, const skv_jcall *call);
static inline bool skv_j_ok(const skv_jrun *r)
{
    return r->status == SKV_OK;
}
/** Counts n steps; false when the budget is exceeded. */
bool skv_j_spend(skv_jrun *r, size_t n);
/** As skv_j_spend, for n bytes inside one operation. */
bool skv_j_spend_bytes(skv_jrun *r, size_t n);
/** Fails with the limit that was exceeded, or for want of memory. */
skv_jv skv_j_fail_limit(skv_jrun *r);
/** Fails since a value that cannot be hashed, or not within the budget, is used as a key. */
skv_jv skv_j_fail_unhashable(skv_jrun *r, skv_jv key);
/** Whether n times `size` bytes can be made at all; counts the work of making them. */
bool skv_j_fits(skv_jrun *r, uint64_t n, size_t size);
/**
 * Enters a level of recursion; false, with nothing to leave, if there are too many. A level of the
 * budget allows SKV_J_CALLS_A_LEVEL of these, about as many as a printing macro needs to call
 * itself. Each takes less than 256 bytes of stack, twice that with a sanitizer.
 */
bool skv_j_enter(skv_jrun *r);
void skv_j_leave(skv_jrun *r);
/** Zeroed memory of the rendering, or NULL and a failure that names the limit. */
void *skv_j_take(skv_jrun *r, size_t count, size_t size);

/* Making values. */
skv_jv skv_j_string(skv_jrun *r, const char *data, size_t size); /* copies; no data */
/** As skv_j_string, for a text that is data. */
skv_jv skv_j_string_data(skv_jrun *r, const char *data, size_t size);
/** Bytes s[from..to) as a value that shares them. */
skv_jv skv_j_part(skv_jrun *r, const skv_jstr *s, size_t from, size_t to);
skv_jv skv_j_text_value(skv_jrun *r, const char *text);
/** Copies the text put together in `out` and releases it; fails if it hit a limit. */
skv_jv skv_j_from_out(skv_jrun *r, skv_jout *out);
/** The marks of `size` bytes at `data`, which stay; NULL after a failure too. Releases them. */
const skv_jmarks *skv_j_take_marks(skv_jrun *r, skv_jmarker *marker, const char *data, size_t size);
void skv_j_out_init(const skv_jrun *r, skv_jout *out);
skv_jv skv_j_list(skv_jrun *r, skv_jkind kind, size_t capacity);
bool skv_j_push(skv_jrun *r, skv_jlist *list, skv_jv item);
skv_jv skv_j_pair(skv_jrun *r, skv_jv a, skv_jv b);
skv_jv skv_j_dict(skv_jrun *r);
/** Python's d[key] = value; a key that cannot be hashed fails. */
bool skv_j_put(skv_jrun *r, skv_jdict *dict, skv_jv key, skv_jv value);
skv_jv skv_j_iterator(skv_jrun *r, const char *what, skv_jv list);
/** Returns undefined, with an error text for its use: `object` has no attribute `name`. */
skv_jv skv_j_no_attribute(skv_jrun *r, const skv_jstr *name, const char *object);
skv_jv skv_j_undefined_text(skv_jrun *r, const char *text);
/** Fails with that reason. */
skv_jv skv_j_fail_undefined(skv_jrun *r, skv_jv undefined);

/** A function of a table by name, or NULL. */
const skv_jfunction *skv_j_lookup(const skv_jfunction *table, size_t n, const skv_jstr *name);
/** A method of `self`. */
skv_jv skv_j_method(skv_jrun *r, skv_jv self, const skv_jfunction *function);

/** Binds arguments: out[i] receives the i-th of `args` (skv_jfunction's), SKV_J_MISSING if it is
 * not given. */
bool skv_j_bind(skv_jrun *r, const skv_jcall *call, const char *args, skv_jv *out);
bool skv_j_arg_int(skv_jrun *r, const skv_jcall *call, skv_jv v, int64_t otherwise, int64_t *out);

/** A value of the rendering that equals the JSON value. */
skv_jv skv_j_from_json(skv_jrun *r, const json_t *json);

/* Text of values: jinja_text.c. */
/** Appends str(v) or repr(v). Fails for values without a stable text in Python. */
void skv_j_write_str(skv_jrun *r, skv_jout *out, skv_jv v);
void skv_j_write_repr(skv_jrun *r, skv_jout *out, skv_jv v);
/** Python's repr of a float: the shortest digits that read back as the same number. */
void skv_j_write_float(skv_jrun *r, skv_buf *buf, double f);
/** Returns str(v) as a value; strings are returned unchanged. */
skv_jv skv_j_str(skv_jrun *r, skv_jv v);

/* Python's operators on values: jinja_op.c, jinja_compare.c, jinja_attr.c. */
bool skv_j_truth(skv_jv v);
/** ==; never fails but for the depth and fuel limits. */
bool skv_j_equal(skv_jrun *r, skv_jv a, skv_jv b);
/** a < b; fails for types without an order. */
bool skv_j_less(skv_jrun *r, skv_jv a, skv_jv b);
/** One comparison of SKV_JN_COMPARE. */
bool skv_j_compare(skv_jrun *r, unsigned op, skv_jv a, skv_jv b);
/** a op b for + - * / // % **. */
skv_jv skv_j_binary(skv_jrun *r, unsigned op, skv_jv a, skv_jv b);
skv_jv skv_j_negate(skv_jrun *r, skv_jv v, bool negative);
/** Returns a list of the items of iter(v), shared if possible; consumes an iterator. */
skv_jv skv_j_items(skv_jrun *r, skv_jv v);
/** len(v); false, without a failure, for values without a length. */
bool skv_j_length(skv_jv v, int64_t *n);
/** obj.name and obj[key] as jinja2's sandbox finds them. */
skv_jv skv_j_getattr(skv_jrun *r, skv_jv object, const skv_jstr *name);
skv_jv skv_j_getitem(skv_jrun *r, skv_jv object, skv_jv key);
/** object[start:stop:step]; an absent part is SKV_J_NONE or SKV_J_MISSING. */
skv_jv skv_j_slice(skv_jrun *r, skv_jv object, const skv_jv part[3]);
/** The bytes of `part` in `text` from byte `from` on; SIZE_MAX when it is not there. */
size_t skv_j_find_bytes(skv_jrun *r, const skv_jstr *text, const skv_jstr *part, size_t from);
/** Returns the text with & < > ' " escaped and marked safe; markup is returned unchanged. */
skv_jv skv_j_escape(skv_jrun *r, skv_jv v);
/** A new list of `items` in the order of their keys; `reverse` keeps equal ones in place too. */
skv_jv skv_j_sorted(skv_jrun *r, const skv_jlist *items, const skv_jlist *keys, bool reverse);

/* Expressions, calls, and the bodies of statements: jinja_eval.c, jinja_call.c, jinja_exec.c. */
skv_jv skv_j_eval(skv_jrun *r, const skv_jnode *node);
/** A filter chain that starts with `input` where the source has no value (block filters). */
skv_jv skv_j_eval_filter(skv_jrun *r, const skv_jnode *node, const skv_jv *input);
/** Calls any value with evaluated arguments; `call->self` is ignored. */
skv_jv skv_j_call(skv_jrun *r, skv_jv function, skv_jcall *call);
/** Evaluates a call's arguments; `caller` (or NULL) is passed on as a keyword. */
bool skv_j_eval_args(skv_jrun *r, const skv_jargs *args, const skv_jv *caller, skv_jcall *call);
/** Filter or test by name, as map, select and their kin call it. */
skv_jv skv_j_call_filter(skv_jrun *r, const skv_jstr *name, skv_jcall *call);
bool skv_j_call_test(skv_jrun *r, const skv_jstr *name, skv_jcall *call);

/** Renders statements into r->out. */
void skv_j_exec(skv_jrun *r, const skv_jnode *const *body, size_t n);
/** A new scope inside `parent`; NULL after a failure. */
skv_jscope *skv_j_open_scope(skv_jrun *r, skv_jscope *parent, const skv_jscope_info *info);

#endif
