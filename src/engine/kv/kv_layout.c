/* Makes the list of slots and tracks, and the bundles that share pages: see kv_cache.h. */
#include <assert.h>

#include "backend/nodes.h"
#include "base/mem.h"
#include "base/size.h"
#include "kv/kv_cache_pages.h"

static bool alike(const skv_kv_track *a, const skv_kv_track *b)
{
    return a->head_dim == b->head_dim && a->windowed == b->windowed && a->sides == b->sides;
}

/* Gives track t a place in the bundle of the last track that is alike, where a page has room for
 * it, else in a new bundle. */
static void place_track(skv_kv_layout *layout, size_t t, size_t widest)
{
    skv_kv_track *track = &layout->tracks[t];
    size_t before = t;
    while (before > 0 && !alike(&layout->tracks[before - 1], track)) before--;
    if (before > 0) {
        skv_kv_track *last = &layout->tracks[before - 1];
        if ((last->place + 2) * track->head_dim <= widest) {
            track->bundle = last->bundle;
            track->place = last->place + 1;
            last->next = t;
            return;
        }
    }
    track->bundle = layout->n_bundles;
    layout->first[layout->n_bundles++] = t;
}

/* Bundles of tracks whose rows all stay, and then of the others. */
static void place_tracks(skv_kv_layout *layout, bool windowed, size_t widest)
{
    for (size_t t = 0; t < skv_kv_layout_tracks(layout); t++) {
        if (layout->tracks[t].windowed == windowed) place_track(layout, t, widest);
    }
}

static void lay_out(skv_kv_layout *layout, const skv_kv_slot *slots)
{
    size_t widest = 0;
    for (size_t s = 0; s < layout->n_slots; s++) {
        const size_t first = layout->track0[s];
        widest = skv_max_size(widest, slots[s].head_dim);
        layout->window = skv_max_size(layout->window, slots[s].window);
        layout->track0[s + 1] = first + slots[s].n_heads;
        for (size_t t = first; t < layout->track0[s + 1]; t++) {
            layout->tracks[t] = (skv_kv_track){.head_dim = slots[s].head_dim,
                                               .windowed = slots[s].window > 0,
                                               .sides = slots[s].sides,
                                               .i_head = t - first,
                                               .n_heads = slots[s].n_heads,
                                               .next = SKV_KV_NO_TRACK};
        }
    }
    place_tracks(layout, false, widest);
    layout->n_full = layout->n_bundles;
    place_tracks(layout, true, widest);
}

skv_status skv_kv_layout_init(skv_kv_layout *layout, const skv_kv_slot *slots, size_t n_slots,
                              skv_error *err)
{
    size_t n_tracks = 0;
    for (size_t s = 0; s < n_slots; s++) n_tracks += slots[s].n_heads;
    *layout = (skv_kv_layout){.n_slots = n_slots};
    layout->track0 = skv_alloc_zero(n_slots + 1, sizeof *layout->track0);
    layout->tracks = skv_alloc(skv_max_size(1, n_tracks), sizeof *layout->tracks);
    layout->first = skv_alloc(skv_max_size(1, n_tracks), sizeof *layout->first);
    if (!layout->track0 || !layout->tracks || !layout->first) {
        skv_kv_layout_release(layout);
        return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu slots", n_slots);
    }
    lay_out(layout, slots);
    return SKV_OK;
}

void skv_kv_layout_release(skv_kv_layout *layout)
{
    if (layout->slots) {
        skv_backend *be = skv_kv_store_backend(layout->store);
        be->slots_free(be, layout->slots);
    }
    skv_free(layout->track0);
    skv_free(layout->tracks);
    skv_free(layout->first);
    *layout = (skv_kv_layout){0};
}

size_t skv_kv_layout_tracks(const skv_kv_layout *layout)
{
    return layout->track0[layout->n_slots];
}

skv_page_range skv_kv_layout_range(const skv_kv_layout *layout, size_t bundle)
{
    switch (layout->tracks[layout->first[bundle]].sides) {
    case 1: return SKV_PAGES_FIRST;
    case 2: return SKV_PAGES_SECOND;
    default: return SKV_PAGES_BOTH;
    }
}

static size_t offset_of(const skv_kv_track *track, skv_kv_type type)
{
    return track->place * skv_kv_page_bytes(type, track->head_dim);
}

size_t skv_kv_layout_offset(const skv_kv_layout *layout, size_t track)
{
    return offset_of(&layout->tracks[track], skv_kv_store_type(layout->store));
}

skv_status skv_kv_layout_bind(skv_kv_layout *layout, skv_kv_store *store, size_t max_rows,
                              skv_error *err)
{
    const size_t n_tracks = skv_kv_layout_tracks(layout);
    const size_t max_pages = skv_max_size(1, skv_kv_pages_for(max_rows));
    size_t n_entries;
    assert(!layout->slots);
    SKV_REQUIRE(skv_size_mul(2 * n_tracks, max_pages, &n_entries) &&
                    n_entries < SIZE_MAX / sizeof(void *),
                err, SKV_RANGE, "kv cache: %zu rows are too many", max_rows);
    skv_track_spec *tracks = skv_alloc(skv_max_size(1, n_tracks), sizeof *tracks);
    unsigned char *sides = skv_alloc_zero(skv_max_size(1, layout->n_slots), 1);
    if (!tracks || !sides) {
        skv_free(tracks);
        skv_free(sides);
        return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu heads", n_tracks);
    }
    const skv_kv_type type = skv_kv_store_type(store);
    for (size_t t = 0; t < n_tracks; t++) {
        const skv_kv_track *track = &layout->tracks[t];
        tracks[t] = (skv_track_spec){track->bundle, offset_of(track, type), track->head_dim};
    }
    for (size_t s = 0; s < layout->n_slots; s++) {
        if (layout->track0[s] < n_tracks) sides[s] = layout->tracks[layout->track0[s]].sides;
    }
    const skv_slots_spec spec = {.pool = skv_kv_store_pool(store),
                                 .type = type,
                                 .n_slots = layout->n_slots,
                                 .n_bundles = layout->n_bundles,
                                 .track0 = layout->track0,
                                 .tracks = tracks,
                                 .max_pages = max_pages,
                                 .sides = sides};
    skv_backend *be = skv_kv_store_backend(store);
    const skv_status status = be->slots_create(be, &spec, &layout->slots, err);
    skv_free(tracks);
    skv_free(sides);
    if (status != SKV_OK) return skv_fail_within(err, status, "kv cache");
    layout->store = store;
    layout->max_pages = max_pages;
    return SKV_OK;
}

size_t skv_kv_layout_node(const skv_kv_layout *layout, size_t bundle, size_t i)
{
    if (skv_kv_store_is_apart(layout->store)) return skv_kv_layout_range(layout, bundle);
    const skv_kv_track *track = &layout->tracks[layout->first[bundle]];
    const size_t n_nodes = skv_kv_store_nodes(layout->store);
    return skv_node_of_head(track->i_head, track->n_heads, i, n_nodes);
}

bool skv_kv_layout_slots_apart(const skv_kv_layout *layout)
{
    for (size_t s = 0; s < layout->n_slots; s++) {
        for (size_t t = layout->track0[s]; t < layout->track0[s + 1]; t++) {
            const size_t next = layout->tracks[t].next;
            if (next != SKV_KV_NO_TRACK && next >= layout->track0[s + 1]) return false;
        }
    }
    return true;
}

void skv_kv_layout_add_pages(const skv_kv_layout *layout, size_t n_rows, size_t n_caches,
                             size_t n_pages[SKV_PAGE_RANGES])
{
    const size_t n_all = skv_kv_pages_for(n_rows);
    const bool all = layout->step_rows == 0 || n_caches == 0;
    /* A step sees so far back, and pages go back whole. */
    const size_t ring = layout->window + SKV_KV_SLACK + SKV_PAGE_ROWS + layout->step_rows;
    const size_t n_seen = all ? n_all : skv_min_size(n_all, n_caches * skv_kv_pages_for(ring));
    for (size_t b = 0; b < layout->n_bundles; b++) {
        n_pages[skv_kv_layout_range(layout, b)] += b < layout->n_full ? n_all : n_seen;
    }
}

size_t skv_kv_layout_pages(const skv_kv_layout *layout, size_t n_rows)
{
    size_t n[SKV_PAGE_RANGES] = {0};
    skv_kv_layout_add_pages(layout, n_rows, 1, n);
    return n[SKV_PAGES_FIRST] + n[SKV_PAGES_BOTH] + n[SKV_PAGES_SECOND];
}
