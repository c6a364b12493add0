/* The table of methods, and choosing by any of them: see evict.h. */
#include "kv/evict.h"

#include "kv/pool_votes.h"

#include "base/size.h"

static const skv_evict_method *const methods[] = {
    &skv_evict_snapkv, &skv_evict_pyramidkv, &skv_evict_adakv, &skv_evict_h2o, &skv_evict_streaming,
};

enum { N_METHODS = sizeof methods / sizeof methods[0] };

const skv_evict_method *skv_evict_method_of(skv_evictor id)
{
    for (size_t i = 0; i < N_METHODS; i++) {
        if (methods[i]->id == id) return methods[i];
    }
    return NULL;
}

bool skv_eviction_form(size_t i, const char **name, const char **form, const char **about)
{
    if (i >= N_METHODS) return false;
    *name = methods[i]->name;
    *form = methods[i]->form;
    *about = methods[i]->about;
    return true;
}

size_t skv_eviction_voters(const skv_eviction *eviction)
{
    const skv_evict_method *method = skv_evict_method_of(eviction->method);
    if (!method || method->voting == SKV_VOTES_NONE) return 0;
    return method->voting == SKV_VOTES_ALL ? SIZE_MAX : eviction->window;
}

void skv_evict_choose(const skv_evict_slot *slot, uint32_t *rows, size_t rows_stride,
                      size_t *n_kept)
{
    const skv_evict_method *method = skv_evict_method_of(slot->how->method);
    for (size_t h = 0; h < slot->n_heads; h++) method->score(slot, h);
    method->share(slot, n_kept);
    for (size_t h = 0; h < slot->n_heads; h++) {
        uint32_t *own = rows + h * rows_stride;
        size_t n_prefix = skv_evict_prefix(slot, h);
        skv_evict_top(slot->votes + h * slot->stride, n_prefix, n_kept[h], own);
        for (size_t i = 0; i < slot->n_window; i++) {
            own[n_kept[h] + i] = (uint32_t)(n_prefix + i);
        }
        n_kept[h] += slot->n_window;
    }
}
