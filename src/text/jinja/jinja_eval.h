/* Expressions, calls, and the bodies of statements. */
#ifndef SKV_TEXT_JINJA_EVAL_H
#define SKV_TEXT_JINJA_EVAL_H

#include "text/jinja/jinja_run.h"

/* A running `for`; the names of the members are those of jinja2's `loop`. */
struct skv_jloop {
    const skv_jnode *node;
    const skv_jlist *items;
    size_t next;       /* of `items`, what to look at next */
    skv_jscope *outer; /* where the loop stands */
    bool filtered;     /* node->c still has to be asked for each item */
    bool has_ahead;    /* `ahead` was taken from `items` already */
    int64_t index0;    /* -1 before the first item */
    int64_t length;    /* -1 while it is not known */
    skv_jv previous, current, ahead;
    skv_jv changed; /* what loop.changed saw last, or SKV_J_MISSING */
};

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
skv_jv skv_j_call_macro(skv_jrun *r, const skv_jmacro *macro, const skv_jcall *call);
/** A new scope inside `parent`; NULL after a failure. */
skv_jscope *skv_j_open_scope(skv_jrun *r, skv_jscope *parent, const skv_jscope_info *info);
/** Starts a scope over, for the next round of a loop. */
void skv_j_reset_scope(skv_jrun *r, skv_jscope *scope, const skv_jscope_info *info);
bool skv_j_store(skv_jrun *r, skv_jscope *scope, uint32_t sym, skv_jv value);

/** The next item of a loop; false at its end or after a failure. */
bool skv_jloop_pull(skv_jrun *r, skv_jloop *loop, skv_jv *item);
/** An attribute of `loop`, SKV_J_MISSING when there is none of that name. */
skv_jv skv_jloop_attribute(skv_jrun *r, skv_jloop *loop, const skv_jstr *name);

/** Assigns to a name, a namespace's attribute, or a tuple of targets. */
void skv_j_assign(skv_jrun *r, const skv_jnode *target, skv_jv value);

/** A global function by name, or NULL. */
const skv_jfunction *skv_jglobal_find(const skv_jstr *name);

#endif
