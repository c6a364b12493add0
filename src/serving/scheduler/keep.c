/*
 * The prefix cache on disk and in a store, as the worker uses it: blocks are written to the disk
 * before they leave memory, sent to the store as soon as they are complete, and fetched for a
 * waiting lane while others run. The worker copies pages; it never waits for a file or the network.
 */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "scheduler/worker.h"

enum {
    TEXT_CONTEXTS = 16, /* ids of remembered texts, in KV memories: 64 bytes a token there */
    FETCH_BLOCKS_MAX = 1 << 16,
    AHEAD_BLOCKS = 256, /* examined for blocks that are not written yet */
    AHEAD_SHARE = 4     /* written ahead when less than this part of the pages is free */
};

/* ---- out ---- */

static void name_block(void *user, uint64_t domain, const uint8_t *parent, const int32_t *ids,
                       uint8_t *name)
{
    const skv_scheduler *s = user;
    skv_spill_name before, out;
    if (parent) memcpy(before.bytes, parent, sizeof before);
    skv_spill_block_name(skv_worker_names(s), domain, parent ? &before : NULL, ids, SKV_PAGE_ROWS,
                         &out);
    memcpy(name, out.bytes, sizeof out);
}

/* Queues a block that is not there yet; false: the queue is full. */
static bool queue_block(skv_scheduler *s, skv_spill *spill, const skv_prefix_block *b,
                        double wait_seconds)
{
    const size_t page_bytes = skv_kv_store_page_bytes(s->engine->store);
    const size_t n_bytes = skv_spill_item_bytes(SKV_PAGE_ROWS, b->n_pages, page_bytes);
    skv_spill_name name;
    memcpy(name.bytes, b->name, sizeof name);
    if (skv_worker_block_comes(s, spill, &name)) return true;
    if (!skv_worker_wait_room(s, spill, n_bytes, wait_seconds)) return false;
    skv_spill_item *item = skv_spill_item_create(SKV_PAGE_ROWS, b->n_pages, page_bytes);
    if (!item) return true;
    item->kind = SKV_SPILL_BLOCK;
    item->name = name;
    if (b->parent) memcpy(item->parent.bytes, b->parent, sizeof item->parent);
    memcpy(item->ids, b->ids, SKV_PAGE_ROWS * sizeof *b->ids);
    skv_worker_put_block(s, spill, item, b->pages, b->n_pages);
    return true;
}

/* Queues a block for the disk, or a note of its use where the disk has it. */
static bool write_block(skv_scheduler *s, const skv_prefix_block *b, double wait_seconds)
{
    skv_spill_name name;
    memcpy(name.bytes, b->name, sizeof name);
    if (skv_spill_has(s->spill, &name)) {
        skv_spill_note_use(s->spill, &name);
    } else if (!queue_block(s, s->spill, b, wait_seconds)) {
        return false;
    }
    return skv_worker_write_state(s, s->spill, b, wait_seconds);
}

static bool share_block(skv_scheduler *s, const skv_prefix_block *b)
{
    skv_spill_name name;
    memcpy(name.bytes, b->name, sizeof name);
    return skv_spill_has(s->store, &name) || queue_block(s, s->store, b, 0);
}

/* Blocks that a lane begins with; the state that moves along with its answer is not sent. */
typedef struct sharing {
    skv_scheduler *s;
    size_t n_tokens, passing;
} sharing;

static bool share_next(void *user, const skv_prefix_block *b)
{
    sharing *share = user;
    share->n_tokens += SKV_PAGE_ROWS;
    if (!share_block(share->s, b)) return false;
    return share->n_tokens == share->passing ||
           skv_worker_write_state(share->s, share->s->store, b, 0);
}

/* Blocks that found no room in the queue are tried again with the lane's next rows, and at its
 * end. */
void skv_worker_share(skv_scheduler *s, const skv_lane *lane)
{
    if (!s->store || !skv_spill_responds(s->store)) return;
    sharing share = {.s = s, .passing = lane->checkpoints.answer};
    skv_prefix_index_show_text(s->prefix, lane->job->domain, lane->ids, skv_lane_cached(lane),
                               share_next, &share);
}

static void give_up_block(void *user, const skv_prefix_block *b)
{
    skv_scheduler *s = user;
    if (s->spill && !write_block(s, b, 0)) skv_spill_count_drop(s->spill);
    if (s->store && skv_spill_responds(s->store) &&
        !(share_block(s, b) && skv_worker_write_state(s, s->store, b, 0))) {
        skv_spill_count_drop(s->store);
    }
}

static void give_up_state(void *user, const skv_prefix_block *b)
{
    skv_scheduler *s = user;
    if (s->spill && !skv_worker_write_state(s, s->spill, b, 0)) skv_spill_count_drop(s->spill);
    if (s->store && skv_spill_responds(s->store) && !skv_worker_write_state(s, s->store, b, 0)) {
        skv_spill_count_drop(s->store);
    }
}

/* Once for each block: one that the limit of the disk removed again is not written over and
 * over. */
static bool write_ahead(void *user, const skv_prefix_block *b)
{
    if (*b->kept) return true;
    *b->kept = write_block(user, b, 0);
    return *b->kept;
}

void skv_worker_spill_ahead(skv_scheduler *s)
{
    size_t n_free = skv_kv_store_free_pages(s->engine->store);
    if (!s->spill || n_free >= skv_kv_store_pages(s->engine->store) / AHEAD_SHARE) return;
    skv_prefix_index_show_idle(s->prefix, AHEAD_BLOCKS, write_ahead, s);
}

typedef struct flush {
    skv_scheduler *s;
    uint64_t end_ns;
} flush;

static double seconds_left(const flush *f)
{
    uint64_t now = skv_clock_ns();
    return now < f->end_ns ? (double)(f->end_ns - now) * 1e-9 : 0;
}

static bool write_last(void *user, const skv_prefix_block *b)
{
    const flush *f = user;
    double seconds = seconds_left(f);
    return seconds > 0 && write_block(f->s, b, seconds);
}

void skv_worker_spill_all(skv_scheduler *s)
{
    if (!s->spill) return;
    flush f = {s, skv_clock_ns() + (uint64_t)(s->options.cache_flush_seconds * 1e9)};
    skv_prefix_index_show_idle(s->prefix, SIZE_MAX, write_last, &f);
    s->flush_seconds = seconds_left(&f);
}

/* ---- and back ---- */

void skv_worker_wake(void *user)
{
    skv_scheduler *s = user;
    pthread_mutex_lock(&s->lock);
    s->nudged = true;
    (void)pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static bool has_states(const skv_scheduler *s)
{
    return s->engine->checkpoints.n > 0;
}

/* Blocks at the beginning of a lane's ids that are in memory, with or without a state after
 * them, and the name of the last. */
static size_t blocks_known(const skv_scheduler *s, const skv_lane *lane, uint8_t *last)
{
    const uint64_t domain = lane->job->domain;
    const size_t n = lane->n_ids - 1;
    if (!has_states(s)) return skv_prefix_index_known(s->prefix, domain, lane->ids, n, last);
    return skv_prefix_index_rows(s->prefix, domain, lane->ids, n, last) / SKV_PAGE_ROWS;
}

/* Those that a lane could begin with. */
static size_t blocks_usable(const skv_scheduler *s, const skv_lane *lane)
{
    uint8_t last[SKV_BLOCK_NAME_BYTES];
    return skv_prefix_index_known(s->prefix, lane->job->domain, lane->ids, lane->n_ids - 1, last);
}

/* Names of the blocks after those in memory that the disk has, of a hybrid model up to the last
 * with a state. Only the store knows its own blocks. */
static size_t find_names(skv_scheduler *s, const skv_lane *lane, skv_spill *from,
                         skv_spill_name *names, size_t *n_known)
{
    uint64_t domain = lane->job->domain;
    size_t n_blocks = (lane->n_ids - 1) / SKV_PAGE_ROWS, n = 0;
    skv_spill_name last;
    *n_known = blocks_known(s, lane, last.bytes);
    for (size_t i = *n_known; i < n_blocks && n < FETCH_BLOCKS_MAX; i++) {
        skv_spill_block_name(from, domain, i > 0 ? &last : NULL, lane->ids + i * SKV_PAGE_ROWS,
                             SKV_PAGE_ROWS, &names[n]);
        if (from == s->spill && !skv_spill_has(from, &names[n])) break;
        last = names[n++];
    }
    while (has_states(s) && from == s->spill && n > 0) {
        skv_spill_state_name(from, &names[n - 1], &last);
        if (skv_spill_has(from, &last)) break;
        n--;
    }
    return n;
}

static bool fetch_blocks(skv_scheduler *s, skv_lane *lane, skv_spill *from,
                         const skv_spill_name *names, size_t n)
{
    lane->disk.fetch = skv_spill_fetch_begin(from, names, n);
    lane->disk.of_states = false;
    if (!lane->disk.fetch) return false;
    lane->disk.fetched_ns = skv_clock_ns();
    s->n_fetching++;
    return true;
}

/* The last state after blocks that are in memory, if it lies beyond the last block with one. */
static bool fetch_state(skv_scheduler *s, skv_lane *lane, skv_spill *from)
{
    uint8_t last[SKV_BLOCK_NAME_BYTES];
    const size_t end = blocks_known(s, lane, last), first = blocks_usable(s, lane);
    skv_spill_name *names = end > first ? skv_alloc(end - first, sizeof *names) : NULL;
    if (!names) return false;
    const size_t n = skv_worker_state_names(s, lane, from, first, end, names);
    lane->disk.fetch = n > 0 ? skv_spill_fetch_any(from, names, n) : NULL;
    skv_free(names);
    if (!lane->disk.fetch) return false;
    lane->disk.of_states = true;
    lane->disk.fetched_ns = skv_clock_ns();
    s->n_fetching++;
    return true;
}

static bool begin_fetch(skv_scheduler *s, skv_lane *lane, skv_spill *from)
{
    size_t n_known, n_blocks = (lane->n_ids - 1) / SKV_PAGE_ROWS;
    skv_spill_name *names = n_blocks > 0 ? skv_alloc(n_blocks, sizeof *names) : NULL;
    if (!names) return false;
    size_t n = find_names(s, lane, from, names, &n_known);
    const bool begun = n > 0 && fetch_blocks(s, lane, from, names, n);
    skv_free(names);
    if (!begun && !(has_states(s) && fetch_state(s, lane, from))) return false;
    bool goes_on = lane->disk.n_disk > lane->disk.n_before; /* after the disk's blocks */
    lane->disk.n_restored = lane->disk.n_disk = n_known * SKV_PAGE_ROWS;
    lane->disk.n_store = lane->disk.n_restored;
    if (!goes_on) lane->disk.n_before = blocks_usable(s, lane) * SKV_PAGE_ROWS;
    return true;
}

void skv_worker_expect_told(skv_lane *lane, size_t n_known)
{
    const bool fetched = lane->disk.n_restored > 0;
    lane->disk.n_restored = lane->disk.n_store = n_known * SKV_PAGE_ROWS;
    if (!fetched) lane->disk.n_before = lane->disk.n_disk = lane->disk.n_restored;
}

bool skv_worker_fetch_told(skv_scheduler *s, skv_lane *lane, const skv_spill_name *names, size_t n)
{
    return fetch_blocks(s, lane, s->store, names, n);
}

bool skv_worker_seek(skv_scheduler *s, skv_lane *lane)
{
    while (lane->disk.n_sought < 2) {
        bool store = lane->disk.n_sought++ > 0;
        skv_spill *from = store ? s->store : s->spill;
        if (!from || (store && !skv_spill_responds(from))) continue;
        if (begin_fetch(s, lane, from)) return true;
    }
    return false;
}

void skv_worker_seek_again(skv_lane *lane)
{
    lane->disk.n_sought = 0;
    lane->disk.n_before = lane->disk.n_disk = lane->disk.n_store = lane->disk.n_restored = 0;
}

/* Others may have computed a block since it was asked for. */
static bool is_known(const skv_scheduler *s, const skv_lane *lane, size_t n)
{
    uint8_t last[SKV_BLOCK_NAME_BYTES];
    return blocks_known(s, lane, last) >= n / SKV_PAGE_ROWS;
}

/* The content of a file becomes a block of the index; false: it does not fit there. */
static bool restore(skv_scheduler *s, skv_lane *lane, const skv_spill_item *item)
{
    skv_kv_store *store = s->engine->store;
    size_t n = lane->disk.n_restored + SKV_PAGE_ROWS;
    const skv_kv_layout *layout = skv_worker_layout(s, lane->job);
    size_t n_pages = layout->n_bundles;
    if (!skv_worker_item_fits(s, lane, item) || !skv_worker_make_room(s, n_pages)) return false;
    uint32_t *pages = skv_alloc(n_pages, sizeof *pages);
    if (!pages) return false;
    for (size_t b = 0; b < n_pages; b++) {
        const size_t node = skv_kv_layout_node(layout, b, n / SKV_PAGE_ROWS - 1);
        pages[b] = skv_kv_page_take(store, node);
    }
    skv_worker_fill_pages(s, lane, item, pages);
    bool kept = skv_prefix_index_restore(s->prefix, lane->job->domain, lane->ids, n, pages, layout);
    for (size_t t = 0; !kept && t < n_pages; t++) skv_kv_page_drop(store, pages[t]);
    skv_free(pages);
    if (!kept && !is_known(s, lane, n)) return false;
    lane->disk.n_restored = n;
    if (lane->disk.n_sought == 1) lane->disk.n_disk = n;
    if (!lane->remote.reading) lane->disk.n_store = n;
    return true;
}

void skv_worker_stop_fetch(skv_scheduler *s, skv_lane *lane)
{
    if (!lane->disk.fetch) return;
    skv_spill_fetch_end(lane->disk.fetch);
    lane->disk.fetch = NULL;
    s->n_fetching--;
}

static skv_spill *source_of(const skv_scheduler *s, const skv_lane *lane)
{
    return lane->disk.n_sought == 1 ? s->spill : s->store;
}

static void collect(skv_scheduler *s, skv_lane *lane, uint64_t until_ns)
{
    skv_spill_item *item;
    bool fits = true, late = false;
    while (fits && !late && (item = skv_spill_fetch_next(lane->disk.fetch))) {
        fits = lane->disk.of_states ? skv_worker_restore_state(s, lane, source_of(s, lane), item)
                                    : restore(s, lane, item);
        skv_free(item);
        lane->disk.fetched_ns = skv_clock_ns();
        late = lane->disk.fetched_ns > until_ns;
    }
    if (fits && late) return;
    skv_spill *from = source_of(s, lane);
    bool silent = skv_clock_ns() - lane->disk.fetched_ns > skv_spill_silence_ns(from);
    if (fits && !silent && !skv_spill_fetch_done(lane->disk.fetch)) return;
    skv_worker_stop_fetch(s, lane);
    if (has_states(s) && !lane->disk.of_states && !silent) (void)fetch_state(s, lane, from);
}

/* Answers under way are not held up longer than by a step: the rest comes after the next one. */
void skv_worker_collect(skv_scheduler *s)
{
    uint64_t until = skv_clock_ns() + (uint64_t)(s->options.step_ms * 1e6);
    for (skv_lane *lane = s->oldest; s->n_fetching > 0 && lane; lane = lane->queue.next) {
        if (!lane->disk.fetch) continue;
        collect(s, lane, until);
        if (skv_clock_ns() > until) {
            skv_worker_wake(s);
            return;
        }
    }
}

/* ---- opening ---- */

static void keep_text(void *user, uint64_t domain, uint64_t key, const int32_t *ids, size_t n_ids)
{
    skv_scheduler *s = user;
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= s->vocab_size) return;
    }
    skv_text_index_put(s->texts, domain, key, ids, n_ids);
}

static skv_status open_texts(skv_scheduler *s, skv_error *err)
{
    if (!s->vocab || s->options.no_text_match) return SKV_OK;
    static const char what[] = "texts";
    skv_spill *names = skv_worker_names(s);
    uint64_t seed = names ? skv_spill_hide(names, what, what, sizeof what) : s->options.seed;
    size_t max_ids = TEXT_CONTEXTS * s->engine->options.kv_tokens;
    SKV_TRY(skv_text_index_create(max_ids, seed, &s->texts, err));
    if (s->spill) skv_spill_load_texts(s->spill, keep_text, s);
    return SKV_OK;
}

static skv_status open_disk(skv_scheduler *s, skv_spill_options options, skv_error *err)
{
    const skv_scheduler_options *o = &s->options;
    options.folder = o->cache_dir;
    options.bytes_max =
        o->cache_disk_bytes ? o->cache_disk_bytes : (size_t)SKV_CACHE_DISK_GIB_DEFAULT << 30;
    return skv_spill_open(&options, &s->spill, err);
}

/* Of a key of any length. */
static skv_status make_secret(const skv_scheduler_options *o, uint8_t *secret, skv_error *err)
{
    static const char tag[] = "swiftkv cache key";
    skv_sha256 sha;
    SKV_REQUIRE(o->n_cache_key >= SKV_CACHE_KEY_BYTES_MIN, err, SKV_ARGUMENT,
                "cache-key-file: %zu bytes, at least %d", o->n_cache_key, SKV_CACHE_KEY_BYTES_MIN);
    skv_sha256_init(&sha);
    skv_sha256_add(&sha, tag, sizeof tag);
    skv_sha256_add(&sha, o->cache_key, o->n_cache_key);
    skv_sha256_end(&sha, secret);
    return SKV_OK;
}

/* Rows and the K,V below them may take more than all K,V: twice as much is beyond both. */
static size_t most_pages(const skv_engine *e)
{
    return 2 * skv_max_size(e->plan.layout.n_bundles,
                            e->has_teacher ? e->teacher_plan.layout.n_bundles : 0);
}

/* Two states are on their way beside blocks. */
static size_t queue_bytes(const skv_scheduler *s)
{
    const size_t page_bytes = skv_kv_store_page_bytes(s->engine->store);
    return SKV_SPILL_QUEUE_BYTES + 2 * skv_worker_state_pages(s) * page_bytes;
}

static skv_status open_spills(skv_scheduler *s, skv_error *err)
{
    uint8_t secret[SKV_SHA256_BYTES];
    skv_scheduler_options *o = &s->options;
    SKV_REQUIRE(!s->engine->ranks, err, SKV_UNSUPPORTED,
                "known prompts stay in memory with several ranks, each of which has the keys and "
                "values of its own heads");
    if (o->cache_key) SKV_TRY(make_secret(o, secret, err));
    if (!(o->cache_flush_seconds > 0)) o->cache_flush_seconds = SKV_CACHE_FLUSH_SECONDS_DEFAULT;
    SKV_REQUIRE(!o->readers || s->engine->states.n == 0, err, SKV_UNSUPPORTED,
                "prefill-from: a reader sends keys and values, and an answer of a hybrid model "
                "needs the states too");
    s->queue_bytes = queue_bytes(s);
    skv_spill_options options = {.store = o->store,
                                 .secret = o->cache_key ? secret : NULL,
                                 .queue_bytes = s->queue_bytes,
                                 .page_bytes = skv_kv_store_page_bytes(s->engine->store),
                                 .pages_max =
                                     skv_max_size(most_pages(s->engine), skv_worker_state_pages(s)),
                                 .log = o->log,
                                 .log_user = o->log_user,
                                 .wake = skv_worker_wake,
                                 .wake_user = s};
    SKV_REQUIRE(!o->readers || o->store, err, SKV_ARGUMENT, "prefill-from: needs a cache-store");
    SKV_TRY(skv_rows_print(s->engine, s->context, !!o->cache_key, options.model, err));
    if (o->cache_dir) SKV_TRY(open_disk(s, options, err));
    if (o->store) SKV_TRY(skv_spill_open(&options, &s->store, err));
    skv_prefix_keeper keeper = {
        .user = s, .name = name_block, .give_up = give_up_block, .give_up_state = give_up_state};
    skv_prefix_index_set_keeper(s->prefix, &keeper);
    return skv_worker_open_rows(s, err);
}

skv_status skv_worker_open_kept(skv_scheduler *s, skv_error *err)
{
    skv_scheduler_options *o = &s->options;
    /* A context shorter than a page has no blocks. */
    bool keeps = s->prefix && s->context > SKV_PAGE_ROWS && (o->cache_dir || o->store);
    skv_status status = keeps ? open_spills(s, err) : SKV_OK;
    if (status == SKV_OK && s->prefix) status = open_texts(s, err);
    o->cache_dir = NULL; /* the caller's own memory is not kept */
    o->cache_key = NULL;
    o->store = NULL;
    return status;
}

static void store_metrics(const skv_scheduler *s, skv_scheduler_metrics *m)
{
    skv_spill_stats stats;
    skv_spill_get_stats(s->store, &stats);
    m->store_up = stats.n_up;
    m->store_queue_bytes = stats.queue_bytes;
    m->store_written = stats.n_written;
    m->store_read = stats.n_read;
    m->store_missed = stats.n_missed;
    m->store_dropped = stats.n_dropped;
    m->store_failed = stats.n_failed;
    m->store_unread = stats.n_unread;
    m->store_bad = stats.n_removed;
    m->store_time = stats.read_time;
    m->readers_up = s->readers_link && s->readers.is_up(s->readers_link);
}

void skv_scheduler_disk_metrics(const skv_scheduler *s, skv_scheduler_metrics *m)
{
    if (s->store) store_metrics(s, m);
    if (!s->spill) return;
    skv_spill_stats stats;
    skv_spill_get_stats(s->spill, &stats);
    m->disk_bytes = stats.n_bytes;
    m->disk_files = stats.n_files;
    m->disk_queue_bytes = stats.queue_bytes;
    m->disk_written = stats.n_written;
    m->disk_read = stats.n_read;
    m->disk_dropped = stats.n_dropped;
    m->disk_failed = stats.n_failed;
    m->disk_removed = stats.n_removed;
}
