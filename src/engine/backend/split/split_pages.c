/*
 * Pages of two back ends. A page has one number in both, and memory in those that its heads are
 * computed on: the first's pool ends where the others begin, and the processor's, which costs
 * nothing until it is touched, has all.
 */
#include <string.h>

#include "backend/split/split_backend.h"
#include "base/mem.h"

enum { TURNS = 32 }; /* jobs at a time */

/* ---- pools ---- */

/* Pages with memory of `side`, but one at least. */
static size_t pages_of(const size_t n[SKV_PAGE_RANGES], unsigned side)
{
    const size_t sum =
        n[SKV_PAGES_BOTH] + n[side == SKV_SPLIT_FIRST ? SKV_PAGES_FIRST : SKV_PAGES_SECOND];
    return skv_max_size(1, sum);
}

static skv_bytes bytes_in(const skv_backend *base, size_t page_bytes,
                          const size_t n[SKV_PAGE_RANGES])
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    skv_bytes sum = {0};
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        sum = skv_bytes_add(sum, be->of[s]->pool_bytes(be->of[s], page_bytes, pages_of(n, s)));
    }
    return sum;
}

static skv_bytes pool_bytes(const skv_backend *base, size_t page_bytes, size_t n_pages)
{
    const size_t n[SKV_PAGE_RANGES] = {[SKV_PAGES_BOTH] = n_pages};
    return bytes_in(base, page_bytes, n);
}

static void pool_free(skv_backend *base, skv_page_pool *pool)
{
    skv_split_backend *be = skv_split_of(base);
    if (!pool) return;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) be->of[s]->pool_free(be->of[s], pool->of[s]);
    skv_free(pool);
}

static skv_status create_in(skv_backend *base, size_t page_bytes, const size_t n[SKV_PAGE_RANGES],
                            skv_page_pool **out, skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    const size_t n_first = n[SKV_PAGES_FIRST] + n[SKV_PAGES_BOTH];
    const size_t sizes[SKV_SPLIT_SIDES] = {skv_max_size(1, n_first),
                                           skv_max_size(1, n_first + n[SKV_PAGES_SECOND])};
    skv_page_pool *pool = skv_alloc_zero(1, sizeof *pool);
    SKV_REQUIRE(pool, err, SKV_MEMORY, "pages: out of memory");
    *pool = (skv_page_pool){
        .page_bytes = page_bytes, .n_first = n_first, .second0 = n[SKV_PAGES_FIRST]};
    skv_status status = SKV_OK;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES && status == SKV_OK; s++) {
        status = be->of[s]->pool_create(be->of[s], page_bytes, sizes[s], &pool->of[s], err);
    }
    if (status != SKV_OK) {
        pool_free(base, pool);
        return status;
    }
    *out = pool;
    return SKV_OK;
}

static skv_status pool_create(skv_backend *base, size_t page_bytes, size_t n_pages,
                              skv_page_pool **out, skv_error *err)
{
    const size_t n[SKV_PAGE_RANGES] = {[SKV_PAGES_BOTH] = n_pages};
    return create_in(base, page_bytes, n, out, err);
}

static unsigned sides_of(const skv_page_pool *pool, uint32_t page)
{
    return (page < pool->n_first ? skv_split_bit(SKV_SPLIT_FIRST) : 0) |
           (page >= pool->second0 ? skv_split_bit(SKV_SPLIT_SECOND) : 0);
}

/* The end of the pages from `i` on that lie where page i does. */
static size_t run_end(const skv_page_pool *pool, const uint32_t *pages, size_t i, size_t n)
{
    const unsigned sides = sides_of(pool, pages[i]);
    while (i < n && sides_of(pool, pages[i]) == sides) i++;
    return i;
}

/* ---- pages ---- */

static void pages_copy(skv_backend *base, skv_page_pool *pool, const uint32_t *to,
                       const uint32_t *from, size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    for (size_t i = 0, end; i < n; i = end) {
        end = run_end(pool, to, i, n);
        for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
            if (!(sides_of(pool, to[i]) & skv_split_bit(s))) continue;
            be->of[s]->pages_copy(be->of[s], pool->of[s], to + i, from + i, end - i);
        }
    }
}

static void pages_compact(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                          const skv_compact_job *jobs, size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    for (size_t i = 0, end; i < n; i = end) {
        const unsigned sides = sides_of(pool, jobs[i].to[0]);
        for (end = i; end < n && sides_of(pool, jobs[end].to[0]) == sides;) end++;
        for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
            if (!(sides & skv_split_bit(s))) continue;
            be->of[s]->pages_compact(be->of[s], pool->of[s], type, jobs + i, end - i);
        }
    }
}

/* At most TURNS jobs. */
static void turn_some(skv_split_backend *be, skv_page_pool *pool, skv_kv_type type,
                      const skv_turn_job *jobs, size_t n)
{
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        skv_turn_job mine[TURNS];
        size_t n_mine = 0;
        for (size_t i = 0; i < n; i++) {
            if (!(sides_of(pool, jobs[i].to[0]) & skv_split_bit(s))) continue;
            mine[n_mine] = jobs[i];
            mine[n_mine++].angles = jobs[i].angles->of[s];
        }
        if (n_mine > 0) be->of[s]->pages_turn(be->of[s], pool->of[s], type, mine, n_mine);
    }
}

static void pages_turn(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                       const skv_turn_job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i += TURNS) {
        turn_some(skv_split_of(base), pool, type, jobs + i, skv_min_size(TURNS, n - i));
    }
}

/* The processor's where it has them. */
static unsigned read_side(const skv_page_pool *pool, uint32_t page)
{
    return page >= pool->second0 ? SKV_SPLIT_SECOND : SKV_SPLIT_FIRST;
}

/* The lists of both have tickets of their own, so it waits. */
static skv_ticket pages_read(skv_backend *base, skv_page_pool *pool, const uint32_t *pages,
                             size_t n, void *host)
{
    skv_split_backend *be = skv_split_of(base);
    unsigned char *at = host;
    be->read_failed = SKV_OK;
    for (size_t i = 0, end; i < n; i = end) {
        skv_backend *of = be->of[read_side(pool, pages[i])];
        skv_status status = SKV_OK;
        end = run_end(pool, pages, i, n);
        const skv_ticket ticket = of->pages_read(of, pool->of[read_side(pool, pages[i])], pages + i,
                                                 end - i, at + i * pool->page_bytes);
        if (ticket != 0) (void)of->pages_done(of, ticket, true, &status);
        if (status != SKV_OK) be->read_failed = status;
    }
    return be->read_failed != SKV_OK;
}

static bool pages_done(skv_backend *base, skv_ticket ticket, bool wait, skv_status *status)
{
    (void)wait;
    *status = ticket != 0 ? skv_split_of(base)->read_failed : SKV_OK;
    return true;
}

static void pages_write(skv_backend *base, skv_page_pool *pool, const uint32_t *pages, size_t n,
                        const void *host)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned char *at = host;
    for (size_t i = 0, end; i < n; i = end) {
        end = run_end(pool, pages, i, n);
        for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
            if (!(sides_of(pool, pages[i]) & skv_split_bit(s))) continue;
            be->of[s]->pages_write(be->of[s], pool->of[s], pages + i, end - i,
                                   at + i * pool->page_bytes);
        }
    }
}

/* The first's where it has it, so that this waits for all that was done. */
static const void *page_map(skv_backend *base, skv_page_pool *pool, uint32_t page)
{
    skv_split_backend *be = skv_split_of(base);
    be->page_side = page < pool->n_first ? SKV_SPLIT_FIRST : SKV_SPLIT_SECOND;
    return be->of[be->page_side]->page_map(be->of[be->page_side], pool->of[be->page_side], page);
}

static void page_unmap(skv_backend *base, const void *host)
{
    skv_split_backend *be = skv_split_of(base);
    be->of[be->page_side]->page_unmap(be->of[be->page_side], host);
}

/* ---- slots and tables ---- */

static void slots_free(skv_backend *base, skv_slots *slots)
{
    skv_split_backend *be = skv_split_of(base);
    if (!slots) return;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) be->of[s]->slots_free(be->of[s], slots->of[s]);
    skv_free(slots->track0);
    skv_free(slots->slot_sides);
    skv_free(slots->bundle_sides);
    skv_free(slots);
}

static void list_sides(skv_slots *slots, const skv_slots_spec *spec)
{
    memcpy(slots->track0, spec->track0, (spec->n_slots + 1) * sizeof *spec->track0);
    for (size_t i = 0; i < spec->n_slots; i++) {
        const unsigned char sides = spec->sides ? spec->sides[i] : 0;
        slots->slot_sides[i] = sides ? sides : SKV_SPLIT_BOTH;
        for (size_t t = spec->track0[i]; t < spec->track0[i + 1]; t++) {
            slots->bundle_sides[spec->tracks[t].bundle] |= slots->slot_sides[i];
        }
    }
}

static skv_status slots_create(skv_backend *base, const skv_slots_spec *spec, skv_slots **out,
                               skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    skv_slots *slots = skv_alloc_zero(1, sizeof *slots);
    SKV_REQUIRE(slots, err, SKV_MEMORY, "pages: out of memory");
    *slots = (skv_slots){.n_slots = spec->n_slots,
                         .n_bundles = spec->n_bundles,
                         .track0 = skv_alloc_zero(spec->n_slots + 1, sizeof *slots->track0),
                         .slot_sides = skv_alloc_zero(spec->n_slots + 1, 1),
                         .bundle_sides = skv_alloc_zero(spec->n_bundles + 1, 1)};
    skv_status status = SKV_OK;
    if (!slots->track0 || !slots->slot_sides || !slots->bundle_sides) {
        status = skv_fail(err, SKV_MEMORY, "pages: out of memory");
    }
    if (status == SKV_OK) list_sides(slots, spec);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES && status == SKV_OK; s++) {
        skv_slots_spec part = *spec;
        part.pool = spec->pool->of[s];
        status = be->of[s]->slots_create(be->of[s], &part, &slots->of[s], err);
    }
    if (status != SKV_OK) {
        slots_free(base, slots);
        return status;
    }
    *out = slots;
    return SKV_OK;
}

static void table_free(skv_backend *base, skv_table *table)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (table->of[s]) be->of[s]->table_free(be->of[s], table->of[s]);
    }
    skv_free(table);
}

static skv_status table_create(skv_backend *base, const skv_slots *slots, skv_table **out,
                               skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    skv_table *table = skv_alloc_zero(1, sizeof *table);
    SKV_REQUIRE(table, err, SKV_MEMORY, "pages: out of memory");
    table->slots = slots;
    skv_status status = SKV_OK;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES && status == SKV_OK; s++) {
        status = be->of[s]->table_create(be->of[s], slots->of[s], &table->of[s], err);
    }
    if (status != SKV_OK) {
        table_free(base, table);
        return status;
    }
    *out = table;
    return SKV_OK;
}

static void table_write(skv_backend *base, skv_table *table, size_t bundle, size_t first,
                        const uint32_t *pages, size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (!(table->slots->bundle_sides[bundle] & skv_split_bit(s))) continue;
        be->of[s]->table_write(be->of[s], table->of[s], bundle, first, pages, n);
    }
}

static void table_dropped(skv_backend *base, skv_table *table, size_t track0, const size_t *dropped,
                          size_t n)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        be->of[s]->table_dropped(be->of[s], table->of[s], track0, dropped, n);
    }
}

void skv_split_fill_pages(skv_backend *table)
{
    table->pool_create = pool_create;
    table->pool_bytes = pool_bytes;
    table->pool_create_in = create_in;
    table->pool_bytes_in = bytes_in;
    table->pool_free = pool_free;
    table->pages_copy = pages_copy;
    table->pages_compact = pages_compact;
    table->pages_turn = pages_turn;
    table->pages_read = pages_read;
    table->pages_done = pages_done;
    table->pages_write = pages_write;
    table->page_map = page_map;
    table->page_unmap = page_unmap;
    table->slots_create = slots_create;
    table->slots_free = slots_free;
    table->table_create = table_create;
    table->table_free = table_free;
    table->table_write = table_write;
    table->table_dropped = table_dropped;
}
