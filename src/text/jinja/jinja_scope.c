/* Scopes while parsing: see jinja_scope.h. */
#include "text/jinja/jinja_scope.h"

#include <string.h>

#include "base/size.h"

skv_jscope_build *skv_jscope_open(skv_jarena *arena, skv_jscope_build *parent)
{
    skv_jscope_build *scope = skv_jarena_take(arena, 1, sizeof *scope);
    if (scope) scope->parent = parent;
    return scope;
}

bool skv_jscope_mention(skv_jarena *arena, skv_jscope_build *scope, uint32_t sym,
                        skv_jmention mention)
{
    if (sym >= scope->n_first) {
        size_t n = skv_max_size(32, 2 * (size_t)sym);
        uint8_t *first = skv_jarena_take(arena, n, 1);
        if (!first) return false;
        if (scope->n_first) memcpy(first, scope->first, scope->n_first);
        scope->first = first;
        scope->n_first = n;
    }
    if (mention == SKV_JM_STORE && scope->n_branches) mention = SKV_JM_STORE_MAYBE;
    if (scope->first[sym] == SKV_JM_NONE) scope->first[sym] = (uint8_t)mention;
    return true;
}

static bool known_outside(const skv_jscope_build *scope, size_t sym)
{
    for (scope = scope->parent; scope; scope = scope->parent)
        if (sym < scope->n_first && scope->first[sym] != SKV_JM_NONE) return true;
    return false;
}

bool skv_jscope_finish(skv_jarena *arena, const skv_jscope_build *scope)
{
    size_t n = 0;
    for (size_t sym = 0; sym < scope->n_first; sym++) n += scope->first[sym] == SKV_JM_STORE;
    if (!n) return true;
    uint32_t *unset = skv_jarena_take(arena, n, sizeof *unset);
    if (!unset) return false;
    n = 0;
    for (size_t sym = 0; sym < scope->n_first; sym++)
        if (scope->first[sym] == SKV_JM_STORE && !known_outside(scope, sym))
            unset[n++] = (uint32_t)sym;
    scope->info->unset = unset;
    scope->info->n_unset = n;
    return true;
}
