/*
 * Areas of the device, and rows that the host has for a while: a copy, as f32, which a kernel
 * converts where the rows are bf16.
 */
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"

enum { ALIGNMENT = 256 };

struct skv_cuda_mapping {
    float *host;  /* owned, [n_rows, n] */
    void *staged; /* owned, of the device: the same */
    skv_rows rows;
    size_t n_rows, n;
    skv_map_access access;
    skv_cuda_mapping *next;
};

skv_cuda_rows skv_cuda_rows_of(skv_rows rows)
{
    const size_t size = rows.area && rows.area->type == SKV_CUDA_BF16 ? 2 : 4;
    if (!rows.area) return (skv_cuda_rows){.at = NULL};
    return (skv_cuda_rows){.at = rows.area->at + rows.at * size,
                           .ld = (uint32_t)rows.ld,
                           .type = rows.area->type,
                           .aligned = rows.at % 8 == 0 && rows.ld % 8 == 0};
}

/* Bytes of an area, or SIZE_MAX. */
static size_t area_bytes(const skv_area_spec *spec)
{
    size_t n = 0;
    const size_t size = spec->kind == SKV_AREA_F32 ? 4 : 2, copies = spec->moves ? 2 : 1;
    const bool fits = skv_size_mul(spec->n_rows, spec->n_columns, &n) &&
                      skv_size_mul(n, size, &n) && n < SIZE_MAX / 4;
    return fits ? copies * skv_round_up(n, ALIGNMENT) : SIZE_MAX;
}

static skv_bytes areas_bytes(const skv_backend *be, const skv_area_spec *specs, size_t n)
{
    skv_bytes sum = {0};
    (void)be;
    for (size_t i = 0; i < n; i++) {
        sum = skv_bytes_add(sum, (skv_bytes){.device = area_bytes(&specs[i])});
    }
    return sum;
}

static skv_status areas_create(skv_backend *be, const skv_area_spec *specs, size_t n,
                               skv_area **out, skv_error *err)
{
    const size_t n_bytes = areas_bytes(be, specs, n).device;
    void *block = NULL;
    SKV_REQUIRE(n_bytes < SIZE_MAX, err, SKV_RANGE, "areas: more bytes than can be counted");
    skv_area *areas = skv_alloc_zero(n, sizeof *areas);
    SKV_REQUIRE(areas, err, SKV_MEMORY, "areas: out of memory");
    const skv_status status = skv_cuda_new(&skv_cuda_of(be)->device, n_bytes, &block, err);
    if (status != SKV_OK) {
        skv_free(areas);
        return status;
    }
    unsigned char *at = block;
    for (size_t i = 0; i < n; i++) {
        const size_t all = area_bytes(&specs[i]);
        areas[i] = (skv_area){.at = at,
                              .other = specs[i].moves ? at + all / 2 : NULL,
                              .block = block,
                              .type = specs[i].kind == SKV_AREA_F32 ? SKV_CUDA_F32 : SKV_CUDA_BF16};
        at += all;
        out[i] = &areas[i];
    }
    return SKV_OK;
}

static void areas_free(skv_backend *be, skv_area **areas, size_t n)
{
    if (n == 0 || !areas[0]) return;
    skv_cuda_delete(&skv_cuda_of(be)->device, areas[0]->block);
    skv_free(areas[0]); /* and the others, which follow it */
}

/* Between the rows and their staged copy. */
static void convert(skv_cuda_backend *be, const skv_cuda_mapping *m, bool to_rows)
{
    const skv_cuda_rows staged = {
        .at = m->staged, .ld = (uint32_t)m->n, .aligned = m->n % 8 == 0, .type = SKV_CUDA_F32};
    const skv_cuda_rows rows = skv_cuda_rows_of(m->rows);
    const skv_cuda_move_args args = {.y = to_rows ? rows : staged,
                                     .x = to_rows ? staged : rows,
                                     .n = (uint32_t)m->n,
                                     .op = SKV_CUDA_COPY,
                                     .factor = 1};
    const skv_cuda_grid grid = {.x = (uint32_t)m->n_rows,
                                .y = (uint32_t)skv_ceil_div(m->n, 128 * 8)};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_move_rows, grid, &args);
}

static skv_mapped map(skv_backend *base, skv_rows rows, size_t n_rows, size_t n,
                      skv_map_access access)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const size_t n_bytes = n_rows * n * sizeof(float);
    skv_cuda_mapping *m = skv_alloc_zero(1, sizeof *m);
    *m = (skv_cuda_mapping){.host = skv_alloc_zero(n_rows * n, sizeof(float)),
                            .rows = rows,
                            .n_rows = n_rows,
                            .n = n,
                            .access = access,
                            .next = be->mappings};
    const skv_status status = skv_cuda_new(&be->device, n_bytes, &m->staged, &be->device.error);
    if (status != SKV_OK) be->device.failed = status;
    be->mappings = m;
    if (access & SKV_MAP_READ) {
        convert(be, m, false);
        skv_cuda_get(&be->device, m->host, m->staged, n_bytes);
    }
    return (skv_mapped){.at = m->host, .ld = n};
}

static void unmap(skv_backend *base, skv_mapped mapped)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    skv_cuda_mapping **at = &be->mappings;
    while (*at && (*at)->host != mapped.at) at = &(*at)->next;
    skv_cuda_mapping *m = *at;
    if (!m) return;
    if (m->access & SKV_MAP_WRITE) {
        skv_cuda_put(&be->device, m->staged, m->host, m->n_rows * m->n * sizeof(float));
        convert(be, m, true);
    }
    skv_cuda_delete(&be->device, m->staged);
    *at = m->next;
    skv_free(m->host);
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
