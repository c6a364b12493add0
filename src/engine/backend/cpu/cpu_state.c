/* Memory for packed weights: large mapped chunks, filled from their start. */
#include "backend/cpu/cpu_state.h"

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

/* Of address space; memory is taken as it is touched. Where address space is what is short
 * (ulimit -v), a chunk is not much larger than what is put into it. */
enum { CHUNK_BYTES = 256 << 20, SHORT_CHUNK_BYTES = 1 << 20 };

void *skv_cpu_take_weights(skv_cpu_backend *be, size_t n_bytes)
{
    skv_cpu_chunk *chunk = be->chunks;
    if (!chunk || n_bytes > chunk->size - chunk->used) {
        chunk = skv_alloc_zero(1, sizeof *chunk);
        if (!chunk) return NULL;
        const bool is_short = skv_address_space_left() < SIZE_MAX;
        chunk->size = skv_max_size(n_bytes, is_short ? SHORT_CHUNK_BYTES : CHUNK_BYTES);
        chunk->base = skv_map_zero(chunk->size);
        if (!chunk->base) {
            skv_free(chunk);
            return NULL;
        }
        chunk->next = be->chunks;
        be->chunks = chunk;
    }
    void *taken = chunk->base + chunk->used;
    chunk->used += n_bytes;
    return taken;
}

void skv_cpu_release_weights(skv_cpu_backend *be)
{
    while (be->chunks) {
        skv_cpu_chunk *chunk = be->chunks;
        be->chunks = chunk->next;
        skv_unmap(chunk->base, chunk->size);
        skv_free(chunk);
    }
}
