/* Rows from another place: see kv_turn.h. */
#include "kv/kv_turn.h"

#include <assert.h>

#include "kv/kv_cache_pages.h"

enum { JOBS = 64 }; /* at a time */

static skv_turn_job job_of(const skv_kv_cache *cache, size_t row0, const skv_kv_run *run,
                           size_t slot, size_t track)
{
    const skv_kv_layout *layout = cache->layout;
    const size_t bundle = layout->tracks[track].bundle;
    return (skv_turn_job){.to = skv_kv_cache_pages(cache, bundle) + row0 / SKV_PAGE_ROWS,
                          .from = run->pages + bundle * run->n_pages,
                          .to_row = row0 % SKV_PAGE_ROWS,
                          .n = run->n,
                          .offset = skv_kv_layout_offset(layout, track),
                          .head_dim = layout->tracks[track].head_dim,
                          .angles = run->angles[slot],
                          .to_position = row0,
                          .from_position = run->position,
                          .context = run->context};
}

void skv_kv_cache_take_run(skv_kv_cache *cache, size_t row0, const skv_kv_run *run)
{
    const skv_kv_layout *layout = cache->layout;
    skv_turn_job jobs[JOBS];
    size_t n_jobs = 0;
    assert(run->n > 0 && run->n <= run->n_pages * SKV_PAGE_ROWS);
    assert(row0 + run->n <= cache->n_rows && !cache->kept);
    for (size_t slot = 0; slot < layout->n_slots; slot++) {
        for (size_t t = layout->track0[slot]; t < layout->track0[slot + 1]; t++) {
            jobs[n_jobs++] = job_of(cache, row0, run, slot, t);
            if (n_jobs < JOBS) continue;
            skv_kv_pages_turn(cache->store, jobs, n_jobs);
            n_jobs = 0;
        }
    }
    if (n_jobs > 0) skv_kv_pages_turn(cache->store, jobs, n_jobs);
}
