/* The `loop` variable: the state of a running `for`, and the attributes that templates read from
 * it. */
#ifndef SKV_TEXT_JINJA_LOOP_H
#define SKV_TEXT_JINJA_LOOP_H

#include "text/jinja/jinja_run.h"

/* The members are named after those of jinja2's `loop`. */
struct skv_jloop {
    /* Whether the loop's own filter (`for x in y if cond`) lets an item through; NULL: no filter,
     * or none of the items left needs it. */
    bool (*admits)(skv_jrun *r, skv_jloop *loop, skv_jv item);
    const skv_jnode *node;
    const skv_jlist *items;
    size_t next;       /* index in `items` of the next one to read */
    skv_jscope *outer; /* the scope around the loop */
    bool has_ahead;    /* `ahead` was taken from `items` already */
    int64_t index0;    /* -1 before the first item */
    int64_t length;    /* -1 while it is not known */
    skv_jv previous, current, ahead;
    skv_jv changed; /* the last arguments of loop.changed, or SKV_J_MISSING */
};

/** The next item of a loop; false at its end or after a failure. */
bool skv_jloop_next(skv_jrun *r, skv_jloop *loop, skv_jv *item);
/** An attribute of `loop`, SKV_J_MISSING when there is none of that name. */
skv_jv skv_jloop_attribute(skv_jrun *r, skv_jloop *loop, const skv_jstr *name);

#endif
