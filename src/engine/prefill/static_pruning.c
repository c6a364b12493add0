/*
 * SP: a quarter of the layers reads the whole prompt, those tokens that its last one attends to
 * least are dropped, and the rest is read from the start. See pruning.h.
 */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/size.h"
#include "kernels/kernels.h"
#include "kernels/kv_page.h"
#include "prefill/pruning.h"

size_t skv_prune_probe_layers(size_t n_layers)
{
    return skv_max_size(1, (n_layers + 2) / 4);
}

/* The lowest score that is kept, by bisection over the order of the numbers: no copy is sorted. */
void skv_prune_by_score(const double *scores, size_t n, size_t n_keep, bool *kept)
{
    double low = -1, high = -1;
    size_t n_above = 0;
    for (size_t i = 0; i < n; i++) high = scores[i] > high ? scores[i] : high;
    for (int step = 0; step < 200 && low < high; step++) {
        const double middle = low + (high - low) / 2;
        size_t n_over = 0;
        for (size_t i = 0; i < n; i++) n_over += scores[i] > middle;
        if (middle <= low || middle >= high) break;
        if (n_over > n_keep) {
            low = middle;
        } else {
            high = middle;
        }
    }
    for (size_t i = 0; i < n; i++) n_above += scores[i] > high;
    size_t n_equal = n_keep > n_above ? n_keep - n_above : 0;
    for (size_t i = 0; i < n; i++) {
        const bool between = scores[i] <= high && scores[i] > low;
        kept[i] = scores[i] > high || (between && n_equal > 0);
        if (between && n_equal > 0) n_equal--;
    }
    for (size_t i = 0; i < n && n_equal > 0; i++) { /* all that is left is lower still */
        if (kept[i]) continue;
        kept[i] = true;
        n_equal--;
    }
}

/* Scaled scores of one query head over rows [from, cache->n_rows), and their softmax added up. */
static void look_with_head(skv_prune_probe *p, size_t i_layer, const float *q, size_t head,
                           size_t from)
{
    const skv_config *c = p->model->config;
    const skv_layer_shape *shape = &c->layers[i_layer];
    const skv_kv_cache *cache = p->cache;
    const skv_kv_type type = skv_kv_store_type(cache->store);
    size_t kv_head = head / (shape->n_heads / shape->n_kv_heads), n_rows = p->n_rows;
    const size_t track = cache->layout->track0[p->plan->layers[i_layer].slot] + kv_head;
    const size_t Dh = skv_config_head_dim(c, i_layer);
    const unsigned char *page = NULL;
    float k[SKV_HEAD_DIM_MAX];
    double most = -HUGE_VAL, sum = 0;
    for (size_t t = from; t < n_rows; t++) {
        if (t == from || t % SKV_PAGE_ROWS == 0) {
            if (page) skv_kv_page_unmap(cache->store, page);
            page =
                skv_kv_page_map(cache->store, skv_kv_cache_page(cache, track, t / SKV_PAGE_ROWS));
        }
        skv_kv_load_ref(page + skv_kv_layout_offset(cache->layout, track), type, t % SKV_PAGE_ROWS,
                        k, NULL, Dh);
        double dot = 0;
        for (size_t d = 0; d < Dh; d++) dot += (double)q[d] * (double)k[d];
        dot *= c->attention_scale;
        if (c->attention_softcap > 0) dot = c->attention_softcap * tanh(dot / c->attention_softcap);
        p->weights[t] = dot;
        most = dot > most ? dot : most;
    }
    if (page) skv_kv_page_unmap(cache->store, page);
    for (size_t t = from; t < n_rows; t++) sum += p->weights[t] = exp(p->weights[t] - most);
    for (size_t t = skv_max_size(from, p->row0); t < p->row0 + p->n; t++) {
        p->scores[t - p->row0] += p->weights[t] / sum;
    }
}

void skv_prune_look(void *user, size_t i_layer, skv_rows q, size_t n_rows)
{
    skv_prune_probe *p = user;
    const skv_layer_shape *shape = &p->model->config->layers[i_layer];
    skv_backend *be = p->model->be;
    const size_t Dh = skv_config_head_dim(p->model->config, i_layer);
    size_t n = p->n_rows;
    size_t from = shape->window > 0 && n > shape->window ? n - shape->window : 0;
    p->work->attention += 2 * (double)(shape->n_heads * Dh) * (double)(n - from);
    const skv_mapped last =
        be->map(be, skv_rows_from(q, n_rows - 1, 0), 1, shape->n_heads * Dh, SKV_MAP_READ);
    for (size_t head = 0; head < shape->n_heads; head++) {
        look_with_head(p, i_layer, last.at + head * Dh, head, from);
    }
    be->unmap(be, last);
}

void skv_prune_random(uint64_t seed, size_t position0, size_t n, double *scores)
{
    for (size_t i = 0; i < n; i++) {
        scores[i] = (double)(skv_mix64(skv_mix64(seed) + position0 + i) >> 11) * 0x1p-53;
    }
}
