/*
 * Areas of two back ends, which know which memory has the contents. They are copied where the other
 * one reads them, and never otherwise.
 */
#include <assert.h>
#include <string.h>

#include "backend/split/split_backend.h"
#include "base/mem.h"

/* ---- life ---- */

static void free_inner(skv_split_backend *be, skv_area *areas, size_t n)
{
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (!areas->inner[s]) continue;
        be->of[s]->areas_free(be->of[s], areas->inner[s], n);
        skv_free(areas->inner[s]);
    }
    skv_free(areas);
}

static skv_status create_inner(skv_split_backend *be, skv_area *areas, const skv_area_spec *specs,
                               size_t n, skv_error *err)
{
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        areas->inner[s] = skv_alloc_zero(n, sizeof *areas->inner[s]);
        SKV_REQUIRE(areas->inner[s], err, SKV_MEMORY, "tensors: no memory for %zu areas", n);
        SKV_TRY(be->of[s]->areas_create(be->of[s], specs, n, areas->inner[s], err));
    }
    return SKV_OK;
}

static skv_status areas_create(skv_backend *base, const skv_area_spec *specs, size_t n,
                               skv_area **out, skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    if (n == 0) return SKV_OK;
    skv_area *areas = skv_alloc_zero(n, sizeof *areas);
    SKV_REQUIRE(areas, err, SKV_MEMORY, "tensors: no memory for %zu areas", n);
    const skv_status status = create_inner(be, areas, specs, n, err);
    if (status != SKV_OK) {
        free_inner(be, areas, n);
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        skv_area *area = out[i] = &areas[i];
        for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) area->of[s] = areas->inner[s][i];
        area->valid = SKV_SPLIT_BOTH; /* zeros */
        area->lasts = specs[i].lasts;
        area->next = be->areas;
        be->areas = area;
    }
    return SKV_OK;
}

static void areas_free(skv_backend *base, skv_area **areas, size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    if (n == 0 || !areas[0]) return;
    skv_area *first = areas[0];
    for (skv_area **at = &be->areas; *at;) {
        if (*at >= first && *at < first + n) {
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
    }
    free_inner(be, first, n);
    for (size_t i = 0; i < n; i++) areas[i] = NULL;
}

static skv_bytes areas_bytes(const skv_backend *base, const skv_area_spec *specs, size_t n)
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    skv_bytes sum = {0};
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        sum = skv_bytes_add(sum, be->of[s]->areas_bytes(be->of[s], specs, n));
    }
    return sum;
}

/* ---- contents ---- */

static void count(skv_split_backend *be, unsigned side, size_t n)
{
    skv_split_counts *c = &be->counts;
    if (side == SKV_SPLIT_SECOND) {
        c->n_down++;
        c->numbers_down += n;
    } else {
        c->n_up++;
        c->numbers_up += n;
    }
}

void skv_split_bring(skv_split_backend *be, skv_area *area, unsigned side)
{
    if (!area || area->valid & skv_split_bit(side)) return;
    area->valid = SKV_SPLIT_BOTH;
    if (area->end == 0) return;
    skv_backend *from = be->of[1 - side], *to = be->of[side];
    const skv_rows there = {area->of[1 - side], 0, area->end};
    const skv_rows here = {area->of[side], 0, area->end};
    const skv_mapped read = from->map(from, there, 1, area->end, SKV_MAP_READ);
    const skv_mapped written = to->map(to, here, 1, area->end, SKV_MAP_WRITE);
    memcpy(written.at, read.at, area->end * sizeof *read.at);
    to->unmap(to, written);
    from->unmap(from, read);
    count(be, side, area->end);
}

static size_t end_of(skv_rows rows, size_t n_rows, size_t n)
{
    return n_rows > 0 ? rows.at + (n_rows - 1) * rows.ld + n : 0;
}

/* Memory that lasts no longer than a step is used anew from its beginning on. */
static void prepare_write(skv_split_backend *be, unsigned side, const skv_rows *rows)
{
    skv_area *area = rows->area;
    if (area->valid & skv_split_bit(side)) return;
    if (area->lasts || rows->at > 0) {
        skv_split_bring(be, area, side);
    } else {
        area->end = 0;
    }
}

void skv_split_use(skv_split_backend *be, unsigned side, skv_rows *rows, size_t n_rows, size_t n,
                   skv_map_access access)
{
    skv_area *area = rows->area;
    if (!area) return;
    if (access & SKV_MAP_READ) {
        skv_split_bring(be, area, side);
    } else {
        prepare_write(be, side, rows);
    }
    if (access & SKV_MAP_WRITE) {
        const size_t end = end_of(*rows, n_rows, n);
        area->valid = skv_split_bit(side);
        area->end = end > area->end ? end : area->end;
    }
    rows->area = area->of[side];
}

void skv_split_use_vec(skv_split_backend *be, unsigned side, skv_vec *vec)
{
    if (!vec->area) return;
    skv_area *area = (skv_area *)(uintptr_t)vec->area;
    skv_split_bring(be, area, side);
    vec->area = area->of[side];
}

unsigned skv_split_choose(const skv_split_backend *be, skv_rows a, skv_rows b)
{
    unsigned valid = a.area ? a.area->valid : SKV_SPLIT_BOTH;
    if (b.area) valid &= b.area->valid;
    if (valid == 0 || valid & skv_split_bit(be->current)) return be->current;
    return 1 - be->current;
}

void skv_split_forget(skv_split_backend *be)
{
    for (skv_area *area = be->areas; area; area = area->next) {
        if (area->lasts) continue;
        area->valid = SKV_SPLIT_BOTH;
        area->end = 0;
    }
}

/* ---- mapped rows ---- */

/* The host writes to all memory that has the contents of the area, and reads the processor's where
 * it can. */
static skv_mapped map(skv_backend *base, skv_rows rows, size_t n_rows, size_t n,
                      skv_map_access access)
{
    skv_split_backend *be = skv_split_of(base);
    skv_area *area = rows.area;
    skv_split_mapping *m = be->mappings;
    while (m < be->mappings + SKV_SPLIT_MAPPINGS && m->host) m++;
    assert(m < be->mappings + SKV_SPLIT_MAPPINGS);
    const bool second = area->valid & skv_split_bit(SKV_SPLIT_SECOND);
    const unsigned side = second ? SKV_SPLIT_SECOND : SKV_SPLIT_FIRST;
    *m = (skv_split_mapping){.side = side, .n_rows = n_rows, .n = n};
    rows.area = area->of[side];
    m->of = be->of[side]->map(be->of[side], rows, n_rows, n, access);
    if (access & SKV_MAP_WRITE && area->valid != SKV_SPLIT_BOTH) {
        const size_t end = end_of(rows, n_rows, n);
        area->end = end > area->end ? end : area->end;
    } else if (access & SKV_MAP_WRITE) {
        rows.area = area->of[1 - side];
        m->other = be->of[1 - side]->map(be->of[1 - side], rows, n_rows, n, SKV_MAP_WRITE);
    }
    m->host = m->of.at;
    return m->of;
}

static void unmap(skv_backend *base, skv_mapped mapped)
{
    skv_split_backend *be = skv_split_of(base);
    skv_split_mapping *m = be->mappings;
    while (m < be->mappings + SKV_SPLIT_MAPPINGS && m->host != mapped.at) m++;
    assert(m < be->mappings + SKV_SPLIT_MAPPINGS);
    for (size_t i = 0; m->other.at && i < m->n_rows; i++) {
        memcpy(m->other.at + i * m->other.ld, m->of.at + i * m->of.ld, m->n * sizeof *m->of.at);
    }
    be->of[m->side]->unmap(be->of[m->side], m->of);
    if (m->other.at) {
        be->of[1 - m->side]->unmap(be->of[1 - m->side], m->other);
        count(be, 1 - m->side, m->n_rows * m->n);
    }
    m->host = NULL;
}

void skv_split_fill_areas(skv_backend *table)
{
    table->areas_create = areas_create;
    table->areas_free = areas_free;
    table->areas_bytes = areas_bytes;
    table->map = map;
    table->unmap = unmap;
}
