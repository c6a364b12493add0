/* Areas of the CPU back end: the host's memory, mapped as it is. */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/mem.h"
#include "base/size.h"

/* An area and a line more: areas of a power of two would all compete for the same lines of a cache
 * where they stood close together. */
static size_t area_bytes(const skv_area_spec *spec)
{
    return skv_round_up(spec->n_rows * spec->n_columns * sizeof(float), SKV_ALIGN) + SKV_ALIGN;
}

skv_bytes skv_cpu_areas_bytes(const skv_backend *base, const skv_area_spec *specs, size_t n)
{
    size_t n_bytes = 0;
    (void)base;
    for (size_t i = 0; i < n; i++) n_bytes += area_bytes(&specs[i]);
    return (skv_bytes){.host = n_bytes};
}

skv_status skv_cpu_areas_create(skv_backend *base, const skv_area_spec *specs, size_t n,
                                skv_area **out, skv_error *err)
{
    const size_t n_bytes = skv_cpu_areas_bytes(base, specs, n).host;
    if (n == 0) return SKV_OK;
    skv_area *areas = skv_alloc_zero(n, sizeof *areas);
    unsigned char *block = areas ? skv_map_zero(n_bytes) : NULL;
    if (!block) {
        skv_free(areas);
        return skv_fail(err, SKV_MEMORY, "tensors: no memory for %zu bytes", n_bytes);
    }
    areas[0].block = block;
    areas[0].block_bytes = n_bytes;
    for (size_t i = 0; i < n; block += area_bytes(&specs[i++])) {
        areas[i].at = (float *)(void *)block;
        out[i] = &areas[i];
    }
    return SKV_OK;
}

void skv_cpu_areas_free(skv_backend *base, skv_area **areas, size_t n)
{
    (void)base;
    if (n == 0 || !areas[0]) return;
    skv_unmap(areas[0]->block, areas[0]->block_bytes);
    skv_free(areas[0]);
    memset(areas, 0, n * sizeof *areas);
}

skv_mapped skv_cpu_map(skv_backend *base, skv_rows rows, size_t n_rows, size_t n,
                       skv_map_access access)
{
    (void)base;
    (void)n_rows;
    (void)n;
    (void)access;
    return (skv_mapped){skv_cpu_at(rows), rows.ld};
}

void skv_cpu_unmap(skv_backend *base, skv_mapped mapped)
{
    (void)base;
    (void)mapped;
}
