/*
 * Areas of the device, and rows that the host has for a while: each area has memory of the host of
 * the same shape, f32, which costs nothing until rows are mapped.
 */
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/float16.h"
#include "base/mem.h"

enum { ALIGNMENT = 256 };

struct skv_cuda_mapping {
    float *host; /* [n_rows, rows.ld] borrowed: of the area */
    skv_rows rows;
    size_t n_rows, n;
    skv_map_access access;
    skv_cuda_mapping *next;
};

static size_t number_bytes(const skv_area *area)
{
    return area->type == SKV_CUDA_BF16 ? 2 : 4;
}

skv_cuda_rows skv_cuda_rows_of(skv_rows rows)
{
    if (!rows.area) return (skv_cuda_rows){.at = NULL};
    return (skv_cuda_rows){.at = rows.area->at + rows.at * number_bytes(rows.area),
                           .ld = (uint32_t)rows.ld,
                           .type = rows.area->type,
                           .aligned = rows.at % 8 == 0 && rows.ld % 8 == 0};
}

static uint32_t type_of(const skv_backend *be, const skv_area_spec *spec)
{
    return spec->kind == SKV_AREA_F32 ? SKV_CUDA_F32 : ((const skv_cuda_backend *)be)->activations;
}

/* Numbers of an area, in whole groups of ALIGNMENT bytes. */
static skv_bytes area_bytes(const skv_backend *be, const skv_area_spec *spec)
{
    size_t n = 0;
    const size_t size = type_of(be, spec) == SKV_CUDA_F32 ? 4 : 2, copies = spec->moves ? 2 : 1;
    const bool fits = skv_size_mul(spec->n_rows, spec->n_columns, &n) && n < SIZE_MAX / 16;
    if (!fits) return (skv_bytes){.device = SIZE_MAX, .host = SIZE_MAX};
    return (skv_bytes){.device = copies * skv_round_up(n * size, ALIGNMENT),
                       .host = skv_round_up(n * sizeof(float), ALIGNMENT)};
}

static skv_bytes areas_bytes(const skv_backend *be, const skv_area_spec *specs, size_t n)
{
    skv_bytes sum = {0};
    for (size_t i = 0; i < n; i++) sum = skv_bytes_add(sum, area_bytes(be, &specs[i]));
    return sum;
}

static void lay_out(const skv_backend *be, skv_area *areas, const skv_area_spec *specs, size_t n,
                    skv_area **out)
{
    unsigned char *at = areas->block, *host = areas->host_block;
    for (size_t i = 0; i < n; i++) {
        const skv_bytes all = area_bytes(be, &specs[i]);
        areas[i].at = at;
        areas[i].other = specs[i].moves ? at + all.device / 2 : NULL;
        areas[i].host = (float *)(void *)host;
        areas[i].type = type_of(be, &specs[i]);
        at += all.device;
        host += all.host;
        out[i] = &areas[i];
    }
}

void skv_cuda_swap(skv_area *area)
{
    unsigned char *other = area->other;
    area->other = area->at;
    area->at = other;
    area->is_swapped = !area->is_swapped;
}

static void list_moving(skv_cuda_backend *be, skv_area *areas, const skv_area_spec *specs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!specs[i].moves || specs[i].lasts) continue;
        areas[i].next = be->moving_areas;
        be->moving_areas = &areas[i];
    }
}

static void unlist_moving(skv_cuda_backend *be, const skv_area *areas, size_t n)
{
    for (skv_area **at = &be->moving_areas; *at;) {
        if (*at >= areas && *at < areas + n) {
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
    }
}

static skv_status areas_create(skv_backend *be, const skv_area_spec *specs, size_t n,
                               skv_area **out, skv_error *err)
{
    const skv_bytes bytes = areas_bytes(be, specs, n);
    SKV_REQUIRE(bytes.device < SIZE_MAX && bytes.host < SIZE_MAX, err, SKV_RANGE,
                "areas: more bytes than can be counted");
    if (n == 0) return SKV_OK;
    skv_area *areas = skv_alloc_zero(n, sizeof *areas);
    SKV_REQUIRE(areas, err, SKV_MEMORY, "areas: out of memory");
    areas->host_bytes = skv_max_size(bytes.host, ALIGNMENT);
    areas->host_block = skv_map_zero(areas->host_bytes);
    skv_status status = SKV_OK;
    if (!areas->host_block) status = skv_fail(err, SKV_MEMORY, "areas: out of memory");
    if (status == SKV_OK) {
        status = skv_cuda_new(&skv_cuda_of(be)->device, bytes.device, &areas->block, err);
    }
    if (status != SKV_OK) {
        if (areas->host_block) skv_unmap(areas->host_block, areas->host_bytes);
        skv_free(areas);
        return status;
    }
    lay_out(be, areas, specs, n, out);
    list_moving(skv_cuda_of(be), areas, specs, n);
    return SKV_OK;
}

static void areas_free(skv_backend *be, skv_area **areas, size_t n)
{
    if (n == 0 || !areas[0]) return;
    unlist_moving(skv_cuda_of(be), areas[0], n);
    skv_cuda_delete(&skv_cuda_of(be)->device, areas[0]->block);
    skv_unmap(areas[0]->host_block, areas[0]->host_bytes);
    skv_free(areas[0]); /* and the others, which follow it */
}

/* ---- mapped rows ---- */

/* Row i of the mapping on the host. bf16 numbers come to the second half of its memory, and grow
 * from the first one on; and the other way round they shrink to its beginning. */
static float *host_row(const skv_cuda_mapping *m, size_t i)
{
    return m->host + i * m->rows.ld;
}

static void widen(float *row, size_t n)
{
    unsigned char *bytes = (unsigned char *)row;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, bytes + 2 * n + 2 * i, sizeof bits);
        const float x = skv_float_of_bf16(bits);
        memcpy(bytes + 4 * i, &x, sizeof x);
    }
}

static void narrow(float *row, size_t n)
{
    unsigned char *bytes = (unsigned char *)row;
    for (size_t i = 0; i < n; i++) {
        const uint16_t bits = skv_bf16_of_float(row[i]);
        memcpy(bytes + 2 * i, &bits, sizeof bits);
    }
}

/* Rows without numbers between them move as one. */
static bool is_dense(const skv_cuda_mapping *m)
{
    return m->rows.ld == m->n && m->rows.area->type == SKV_CUDA_F32;
}

static void get_rows(skv_cuda_device *device, const skv_cuda_mapping *m)
{
    const skv_area *area = m->rows.area;
    const size_t size = number_bytes(area), n_rows = is_dense(m) ? 1 : m->n_rows;
    const size_t n = is_dense(m) ? m->n_rows * m->n : m->n;
    for (size_t i = 0; i < n_rows; i++) {
        unsigned char *to = (unsigned char *)host_row(m, i) + (size == 2 ? 2 * n : 0);
        skv_cuda_begin_get(device, to, area->at + (m->rows.at + i * m->rows.ld) * size, n * size);
    }
    skv_cuda_settle(device);
    for (size_t i = 0; i < n_rows && size == 2; i++) widen(host_row(m, i), n);
}

static void put_rows(skv_cuda_device *device, const skv_cuda_mapping *m)
{
    const skv_area *area = m->rows.area;
    const size_t size = number_bytes(area), n_rows = is_dense(m) ? 1 : m->n_rows;
    const size_t n = is_dense(m) ? m->n_rows * m->n : m->n;
    for (size_t i = 0; i < n_rows; i++) {
        if (size == 2) narrow(host_row(m, i), n);
        skv_cuda_put(device, area->at + (m->rows.at + i * m->rows.ld) * size, host_row(m, i),
                     n * size);
    }
}

/* Without memory for a note the device has failed, and nothing is written. */
static skv_mapped map(skv_backend *base, skv_rows rows, size_t n_rows, size_t n,
                      skv_map_access access)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_cuda_mapping mapping = {.host = rows.area->host + rows.at,
                                      .rows = rows,
                                      .n_rows = n_rows,
                                      .n = n,
                                      .access = access,
                                      .next = be->mappings};
    skv_cuda_mapping *m = skv_alloc(1, sizeof *m);
    if (m) {
        *m = mapping;
        be->mappings = m;
    } else if (be->device.failed == SKV_OK) {
        be->device.failed = skv_fail(&be->device.error, SKV_MEMORY, "rows: out of memory");
    }
    if (access & SKV_MAP_READ) get_rows(&be->device, &mapping);
    return (skv_mapped){.at = mapping.host, .ld = rows.ld};
}

static void unmap(skv_backend *base, skv_mapped mapped)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    skv_cuda_mapping **at = &be->mappings;
    while (*at && (*at)->host != mapped.at) at = &(*at)->next;
    skv_cuda_mapping *m = *at;
    if (!m) return;
    if (m->access & SKV_MAP_WRITE) put_rows(&be->device, m);
    *at = m->next;
    skv_free(m);
}

void skv_cuda_fill_areas(skv_backend *table)
{
    table->areas_create = areas_create;
    table->areas_free = areas_free;
    table->areas_bytes = areas_bytes;
    table->map = map;
    table->unmap = unmap;
}
