/* Parameters in training: see param.h. */
#include "train/param.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

skv_status skv_params_init(skv_params *params, size_t n_max, skv_error *err)
{
    *params = (skv_params){.n_max = n_max};
    params->at = skv_alloc_zero(n_max, sizeof *params->at);
    SKV_REQUIRE(params->at, err, SKV_MEMORY, "training: no memory for %zu parameters", n_max);
    return SKV_OK;
}

void skv_params_release(skv_params *params)
{
    if (params->weights) skv_unmap(params->weights, params->n_weights * sizeof(float));
    if (params->grads) skv_unmap(params->grads, params->n_trainable * sizeof(float));
    if (params->copies) skv_unmap(params->copies, params->n_copies * sizeof(float));
    skv_free(params->at);
    *params = (skv_params){0};
}

skv_param *skv_params_add(skv_params *params, const char *name, size_t n_rows, size_t n_columns)
{
    skv_param *p = &params->at[params->n++];
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    p->vector = n_rows == 0;
    p->rate_share = 1.0f;
    p->n_rows = p->vector ? 1 : n_rows;
    p->n_columns = n_columns;
    return p;
}

/* Every tensor begins on a cache line. */
static size_t padded(const skv_param *p)
{
    return skv_round_up(skv_param_size(p), SKV_ALIGN / sizeof(float));
}

static float *take(float **next, const skv_param *p)
{
    float *at = *next;
    *next += padded(p);
    return at;
}

void skv_params_count(skv_params *params, bool copies)
{
    params->n_weights = params->n_trainable = 0;
    for (size_t i = 0; i < params->n; i++) {
        size_t n = padded(&params->at[i]);
        if (!params->at[i].file) params->n_weights += n;
        if (params->at[i].trainable) params->n_trainable += n;
    }
    params->n_copies = copies ? params->n_trainable : 0;
}

skv_status skv_params_allocate(skv_params *params, bool copies, skv_error *err)
{
    skv_params_count(params, copies);
    params->weights = skv_map_zero(params->n_weights * sizeof(float));
    if (params->n_trainable) params->grads = skv_map_zero(params->n_trainable * sizeof(float));
    if (params->n_copies) params->copies = skv_map_zero(params->n_copies * sizeof(float));
    bool all = params->weights && (params->grads || !params->n_trainable) &&
               (params->copies || !params->n_copies);
    SKV_REQUIRE(all, err, SKV_MEMORY, "training: no memory for %zu weights and %zu gradients",
                params->n_weights, params->n_trainable);
    float *w = params->weights, *g = params->grads, *c = params->copies;
    for (size_t i = 0; i < params->n; i++) {
        skv_param *p = &params->at[i];
        if (p->file) continue;
        p->w = take(&w, p);
        p->teacher = p->w;
        if (p->trainable) p->grad = take(&g, p);
        if (p->trainable && copies) p->teacher = take(&c, p);
    }
    return SKV_OK;
}

skv_param *skv_params_find(const skv_params *params, const char *name)
{
    for (size_t i = 0; i < params->n; i++) {
        if (strcmp(params->at[i].name, name) == 0) return &params->at[i];
    }
    return NULL;
}

void skv_params_keep_teacher(skv_params *params)
{
    float *c = params->copies;
    for (size_t i = 0; c && i < params->n; i++) {
        skv_param *p = &params->at[i];
        if (p->trainable) memcpy(take(&c, p), p->w, skv_param_size(p) * sizeof(float));
    }
}
