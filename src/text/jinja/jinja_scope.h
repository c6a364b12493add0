/*
 * Which names a scope hides from the start.
 *
 * jinja2 decides while compiling where a name is read from. Nearly always that equals looking
 * through the scopes from the inside out while rendering, which is what the interpreter does.
 * The exception: a name whose first mention in a scope is an unconditional `set`, and that no
 * outer scope mentions, belongs to this scope from its very start; a loop or macro inside that
 * reads it before the `set` ran sees it undefined, even if the caller passed a variable of that
 * name. The parser reports every mention here, and skv_jscope_finish lists those names.
 */
#ifndef SKV_TEXT_JINJA_SCOPE_H
#define SKV_TEXT_JINJA_SCOPE_H

#include "text/jinja/jinja_ast.h"

typedef enum skv_jmention {
    SKV_JM_NONE,
    SKV_JM_LOAD,
    SKV_JM_STORE,       /* a `set` that always runs */
    SKV_JM_STORE_MAYBE, /* one inside of an `if` */
    SKV_JM_PARAM
} skv_jmention;

typedef struct skv_jscope_build {
    struct skv_jscope_build *parent;
    struct skv_jscope_build *next; /* all scopes of the template */
    uint8_t *first;                /* [n_first] skv_jmention of each name */
    size_t n_first;
    size_t n_branches;     /* `if`s around the place being parsed, within this scope */
    skv_jscope_info *info; /* borrowed from the template; the parser sets it */
} skv_jscope_build;

/** A new scope inside `parent` (or NULL); NULL without memory. */
skv_jscope_build *skv_jscope_open(skv_jarena *arena, skv_jscope_build *parent);
/** Records a mention; false without memory. */
bool skv_jscope_mention(skv_jarena *arena, skv_jscope_build *scope, uint32_t sym,
                        skv_jmention mention);
/** Fills `unset` of this scope's info, when the whole template is parsed. */
bool skv_jscope_finish(skv_jarena *arena, const skv_jscope_build *scope);

#endif
