/* The queue, the fetches and the thread of the prefix cache on disk or in a store: see spill.h. */
#include "scheduler/spill.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/system.h"
#include "scheduler/histogram.h"
#include "scheduler/spill_impl.h"

static const uint64_t DISK_SILENCE_NS = 2000000000u;
static const uint64_t TELL_PINS_NS = 1000000000u; /* a store is told of pins once in this time, */
enum { PINS_TOLD = 64 };                          /* or with each item, of so many */

static size_t bytes_of(const skv_spill *s, const skv_spill_item *item)
{
    return skv_spill_item_bytes(item->n_ids, item->n_pages, s->place.form.page_bytes);
}

/* An entry's bytes in the list: bytes of files, or one of the remembered names. */
static size_t weight_of(const skv_spill *s, const skv_spill_item *item)
{
    return s->folder ? bytes_of(s, item) : 1;
}

/* ---- names ---- */

static void begin_hash(const skv_spill *s, const char *tag, skv_sha256 *sha)
{
    skv_sha256_init(sha);
    skv_sha256_add(sha, s->secret, sizeof s->secret);
    skv_sha256_add(sha, tag, strlen(tag) + 1);
}

static void end_name(skv_sha256 *sha, skv_spill_name *name)
{
    uint8_t digest[SKV_SHA256_BYTES];
    skv_sha256_end(sha, digest);
    memcpy(name->bytes, digest, sizeof *name);
}

uint64_t skv_spill_hide(const skv_spill *s, const char *tag, const void *data, size_t n)
{
    skv_sha256 sha;
    skv_spill_name name;
    begin_hash(s, tag, &sha);
    skv_sha256_add(&sha, data, n);
    end_name(&sha, &name);
    uint64_t bits;
    memcpy(&bits, name.bytes, sizeof bits);
    return bits;
}

void skv_spill_block_name(const skv_spill *s, uint64_t domain, const skv_spill_name *parent,
                          const int32_t *ids, size_t n_ids, skv_spill_name *name)
{
    skv_sha256 sha;
    skv_spill_name none = {{0}};
    begin_hash(s, "block", &sha);
    skv_sha256_add(&sha, &s->place.form.fingerprint, sizeof s->place.form.fingerprint);
    skv_sha256_add(&sha, &domain, sizeof domain);
    skv_sha256_add(&sha, parent ? parent : &none, sizeof none);
    skv_sha256_add(&sha, ids, n_ids * sizeof *ids);
    end_name(&sha, name);
}

void skv_spill_state_name(const skv_spill *s, const skv_spill_name *block, skv_spill_name *name)
{
    skv_sha256 sha;
    begin_hash(s, "state", &sha);
    skv_sha256_add(&sha, block, sizeof *block);
    end_name(&sha, name);
}

/* ---- writing ---- */

bool skv_spill_has(skv_spill *s, const skv_spill_name *name)
{
    pthread_mutex_lock(&s->lock);
    bool has = skv_spill_list_has(&s->list, name);
    pthread_mutex_unlock(&s->lock);
    return has;
}

static bool is_item(const skv_spill_item *item, const skv_spill_name *name)
{
    return item && memcmp(&item->name, name, sizeof *name) == 0;
}

bool skv_spill_stored(skv_spill *s, const skv_spill_name *name)
{
    pthread_mutex_lock(&s->lock);
    bool has = skv_spill_list_has(&s->list, name) && !is_item(s->writing, name);
    for (const skv_spill_item *item = s->first; has && item; item = item->next) {
        has = !is_item(item, name);
    }
    pthread_mutex_unlock(&s->lock);
    return has;
}

/* With the lock held: waits until the queue has room, or for too long. */
static bool wait_for_room(skv_spill *s, size_t n_bytes, double seconds)
{
    const struct timespec end = skv_clock_in(seconds > 0 ? (uint64_t)(seconds * 1e9) : 0);
    int code = 0;
    while (s->stats.queue_bytes > 0 && s->stats.queue_bytes + n_bytes > s->options.queue_bytes) {
        if (!(seconds > 0) || code == ETIMEDOUT) return false;
        code = skv_cond_wait_until(&s->moved, &s->lock, &end);
    }
    return true;
}

bool skv_spill_wait_room(skv_spill *s, size_t n_bytes, double seconds)
{
    pthread_mutex_lock(&s->lock);
    bool room = wait_for_room(s, n_bytes, seconds);
    pthread_mutex_unlock(&s->lock);
    return room;
}

void skv_spill_count_drop(skv_spill *s)
{
    pthread_mutex_lock(&s->lock);
    s->stats.n_dropped++;
    pthread_mutex_unlock(&s->lock);
}

/* A store has it, or soon will; the name that was not used for longest may be forgotten. */
static void remember_name(skv_spill *s, const skv_spill_name *name)
{
    skv_spill_name old;
    while (skv_spill_list_make_way(&s->list, NULL, 1, &old)) continue;
    if (!skv_spill_list_add(&s->list, name, 1)) skv_spill_list_touch(&s->list, name);
}

void skv_spill_put(skv_spill *s, skv_spill_item *item)
{
    size_t n_bytes = bytes_of(s, item);
    item->next = NULL;
    pthread_mutex_lock(&s->lock);
    bool is_there = item->kind != SKV_SPILL_NOTE && skv_spill_list_has(&s->list, &item->name);
    bool fits =
        !is_there && weight_of(s, item) <= s->list.bytes_max && wait_for_room(s, n_bytes, 0);
    if (fits) {
        *(s->last ? &s->last->next : &s->first) = item;
        s->last = item;
        s->stats.queue_bytes += n_bytes;
        s->stats.queue_items++;
        if (!s->folder) remember_name(s, &item->name); /* it need not be sent again */
        (void)pthread_cond_signal(&s->wake);
    } else if (!is_there && item->kind != SKV_SPILL_NOTE) {
        s->stats.n_dropped++;
    }
    pthread_mutex_unlock(&s->lock);
    if (!fits) skv_free(item);
}

/* The list learns of it now: items that the queue writes before the note must not push the block
 * out. */
void skv_spill_note_use(skv_spill *s, const skv_spill_name *name)
{
    pthread_mutex_lock(&s->lock);
    skv_spill_list_touch(&s->list, name);
    pthread_mutex_unlock(&s->lock);
    skv_spill_item *item = skv_spill_item_create(0, 0, s->place.form.page_bytes);
    if (!item) return;
    item->kind = SKV_SPILL_NOTE;
    item->name = *name;
    skv_spill_put(s, item);
}

void skv_spill_pin_text(skv_spill *s, const skv_pinned_text *text)
{
    pthread_mutex_lock(&s->lock);
    skv_spill_pins_add(&s->pins, text, skv_clock_ns());
    pthread_mutex_unlock(&s->lock);
}

void skv_spill_put_text(skv_spill *s, uint64_t domain, uint64_t key, const int32_t *ids,
                        size_t n_ids)
{
    skv_spill_item *item = skv_spill_item_create(n_ids, 0, s->place.form.page_bytes);
    if (!item) return;
    item->kind = SKV_SPILL_TEXT;
    memcpy(item->ids, ids, n_ids * sizeof *ids);
    memcpy(item->parent.bytes, &domain, sizeof domain);
    memcpy(item->parent.bytes + sizeof domain, &key, sizeof key);
    skv_sha256 sha;
    begin_hash(s, "text", &sha);
    skv_sha256_add(&sha, &item->parent, sizeof item->parent);
    skv_sha256_add(&sha, ids, n_ids * sizeof *ids);
    end_name(&sha, &item->name);
    skv_spill_put(s, item);
}

/* ---- the thread: its functions are called with the lock held and release it while they work ----
 */

static void leave_lock(skv_spill *s)
{
    s->busy_ns = skv_clock_ns();
    pthread_mutex_unlock(&s->lock);
}

static void take_lock(skv_spill *s)
{
    pthread_mutex_lock(&s->lock);
    s->busy_ns = 0;
}

static skv_status write_item(skv_spill *s, const skv_spill_item *item, skv_error *err)
{
    skv_spill_name old;
    const size_t weight = weight_of(s, item);
    while (s->folder && skv_spill_list_make_way(&s->list, &s->pins, weight, &old)) {
        leave_lock(s);
        s->medium->remove(s, &old);
        take_lock(s);
    }
    leave_lock(s);
    skv_status status = s->medium->write(s, item, err);
    take_lock(s);
    if (!s->folder) { /* its name was listed when it was queued */
        if (status != SKV_OK) skv_spill_list_remove(&s->list, &item->name);
        return status;
    }
    if (status == SKV_OK && !skv_spill_list_add(&s->list, &item->name, weight)) {
        s->medium->remove(s, &item->name);
        status = skv_fail(err, SKV_MEMORY, "no memory");
    }
    return status;
}

static void note_use(skv_spill *s, const skv_spill_name *name)
{
    skv_spill_list_touch(&s->list, name);
    leave_lock(s);
    s->medium->touch(s, name);
    take_lock(s);
}

static void write_new(skv_spill *s, const skv_spill_item *item)
{
    skv_error err;
    skv_status status = write_item(s, item, &err);
    bool away = status == SKV_CANCELLED, failed = status != SKV_OK && !away;
    s->stats.n_written += status == SKV_OK;
    s->stats.n_dropped += away;
    s->stats.n_failed += failed;
    /* One line when it begins to fail, not one for each block. */
    if (failed && !s->failing) skv_spill_log(s, "%s", err.text);
    if (!away) s->failing = failed;
}

static void write_next(skv_spill *s)
{
    skv_spill_item *item = s->first;
    size_t n_bytes = bytes_of(s, item);
    s->first = item->next;
    if (!s->first) s->last = NULL;
    s->writing = item;
    if (s->folder && skv_spill_list_has(&s->list, &item->name)) {
        note_use(s, &item->name);
    } else if (item->kind != SKV_SPILL_NOTE) {
        write_new(s, item);
    }
    s->writing = NULL;
    s->stats.queue_bytes -= n_bytes;
    s->stats.queue_items--;
    (void)pthread_cond_broadcast(&s->moved);
    skv_free(item);
}

static void free_fetch(skv_spill_fetch *f)
{
    while (f->first) {
        skv_spill_item *item = f->first;
        f->first = item->next;
        f->spill->arrived_bytes -= bytes_of(f->spill, item);
        skv_free(item);
    }
    skv_free(f->names);
    skv_free(f);
}

static void take_item(skv_spill *s, skv_spill_fetch *f, skv_spill_item *item)
{
    item->next = NULL;
    *(f->last ? &f->last->next : &f->first) = item;
    f->last = item;
    f->n_read++;
    s->arrived_bytes += bytes_of(s, item);
    s->stats.n_read++;
}

/* A file that could not be read is no longer known; a bad one is gone. */
static void forget(skv_spill *s, const skv_spill_name *name, skv_status status, const char *why)
{
    char text[SKV_SPILL_FILE_NAME];
    skv_spill_list_remove(&s->list, name);
    s->stats.n_missed += status == SKV_RANGE;
    s->stats.n_unread += status == SKV_IO;
    if (status != SKV_FORMAT) return;
    s->stats.n_removed++;
    skv_spill_name_format(name, false, text);
    if (s->folder) skv_spill_log(s, "%s is removed: %s", text, why);
    /* Other servers that write to the store may do so often. */
    if (!s->folder && s->stats.n_removed == 1) skv_spill_log(s, "a block is not used: %s", why);
}

/* Reads block i of a fetch, without the lock. After the last one the chain counts as used: its
 * first block becomes the newest, since no later block is found without it. */
static skv_status read_block(skv_spill *s, const skv_spill_fetch *f, size_t i,
                             skv_spill_item **item, skv_error *err)
{
    skv_status status = s->medium->read(s, &f->names[i], item, err);
    if (status == SKV_FORMAT) s->medium->remove(s, &f->names[i]);
    if (f->any && status == SKV_OK) s->medium->touch(s, &f->names[i]);
    if (f->any || (status == SKV_OK && i + 1 < f->n)) return status;
    for (size_t k = status == SKV_OK ? i + 1 : i; k-- > 0;) {
        s->medium->touch(s, &f->names[k]);
    }
    return status;
}

/* Whether the next one may be there where this one is not. */
static bool goes_on(const skv_spill_fetch *f, skv_status status)
{
    const bool lacks = status == SKV_RANGE || status == SKV_FORMAT || status == SKV_IO;
    return f->any && lacks && f->n_read + 1 < f->n;
}

static void touch_read(skv_spill *s, const skv_spill_fetch *f)
{
    for (size_t i = f->n_read; i-- > 0 && !f->any;) skv_spill_list_touch(&s->list, &f->names[i]);
}

static void read_next(skv_spill *s, skv_spill_fetch *f)
{
    skv_spill_item *item = NULL;
    skv_error err;
    f->reading = true;
    leave_lock(s);
    const uint64_t start = s->busy_ns;
    skv_status status = read_block(s, f, f->n_read, &item, &err);
    take_lock(s);
    f->reading = false;
    if (status == SKV_OK) {
        skv_histogram_add(&s->stats.read_time, skv_clock_ns() - start);
        take_item(s, f, item);
        if (!s->folder) remember_name(s, &item->name);
    } else if (goes_on(f, status)) {
        if (status != SKV_RANGE) forget(s, &f->names[f->n_read], status, err.text);
        f->n_read++;
    } else {
        f->failed = true;
        if (status != SKV_MEMORY) forget(s, &f->names[f->n_read], status, err.text);
    }
    if (f->failed || f->n_read == f->n) touch_read(s, f);
    if (f->any && status == SKV_OK) {
        skv_spill_list_touch(&s->list, &f->names[f->n_read - 1]);
        f->n_read = f->n;
    }
    if (f->ended) {
        free_fetch(f);
    } else if (s->options.wake) {
        pthread_mutex_unlock(&s->lock);
        s->options.wake(s->options.wake_user);
        pthread_mutex_lock(&s->lock);
    }
}

static skv_spill_fetch *next_fetch(const skv_spill *s)
{
    if (s->arrived_bytes >= s->options.queue_bytes) return NULL;
    skv_spill_fetch *f = s->fetches;
    while (f && (f->failed || f->n_read == f->n)) f = f->next;
    return f;
}

/* A store gives up the least recently used items, with each new one. */
static void tell_pins(skv_spill *s)
{
    skv_spill_name names[PINS_TOLD];
    const uint64_t now = skv_clock_ns();
    const bool due = s->stats.n_written != s->n_told || now - s->told_ns > TELL_PINS_NS;
    if (!s->medium->pin || !due) return;
    s->n_told = s->stats.n_written;
    s->told_ns = now;
    const size_t n = skv_spill_pins_next(&s->pins, now, names, PINS_TOLD);
    if (n == 0) return;
    leave_lock(s);
    s->medium->pin(s, names, n);
    take_lock(s);
}

static void tend(skv_spill *s)
{
    if (!s->medium->tend) return;
    skv_block_store_state state = {.n_up = 0};
    leave_lock(s);
    s->medium->tend(s, &state);
    take_lock(s);
    s->store_state = state;
    if (state.lost) skv_spill_list_clear(&s->list);
}

/* Until there is something to do. */
static void rest(skv_spill *s)
{
    if (!s->medium->tend) {
        (void)pthread_cond_wait(&s->wake, &s->lock);
        return;
    }
    const struct timespec end = skv_clock_in(s->store_state.wait_ms * UINT64_C(1000000));
    (void)skv_cond_wait_until(&s->wake, &s->lock, &end);
}

static void *work(void *arg)
{
    skv_spill *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        tend(s);
        tell_pins(s);
        skv_spill_fetch *fetch = next_fetch(s);
        if (s->stopping && (!s->first || skv_clock_ns() > s->give_up_ns)) break;
        if (fetch) {
            read_next(s, fetch);
        } else if (s->first) {
            write_next(s);
        } else {
            rest(s);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

uint64_t skv_spill_silence_ns(const skv_spill *s)
{
    return s->folder ? DISK_SILENCE_NS : (uint64_t)(2e9 * s->store.seconds);
}

bool skv_spill_responds(skv_spill *s)
{
    pthread_mutex_lock(&s->lock);
    bool hangs = s->busy_ns > 0 && skv_clock_ns() - s->busy_ns > skv_spill_silence_ns(s);
    bool responds = !hangs && s->store_state.n_up > 0;
    pthread_mutex_unlock(&s->lock);
    return responds;
}

/* ---- reading ---- */

static skv_spill_fetch *begin_fetch(skv_spill *s, const skv_spill_name *names, size_t n, bool any)
{
    skv_spill_fetch *f = skv_alloc_zero(1, sizeof *f);
    skv_spill_name *copy = skv_alloc(n, sizeof *names);
    if (!f || !copy) {
        skv_free(f);
        skv_free(copy);
        return NULL;
    }
    memcpy(copy, names, n * sizeof *names);
    *f = (skv_spill_fetch){.spill = s, .names = copy, .n = n, .any = any};
    pthread_mutex_lock(&s->lock);
    skv_spill_fetch **at = &s->fetches;
    while (*at) at = &(*at)->next;
    *at = f;
    (void)pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return f;
}

skv_spill_fetch *skv_spill_fetch_begin(skv_spill *s, const skv_spill_name *names, size_t n)
{
    return begin_fetch(s, names, n, false);
}

skv_spill_fetch *skv_spill_fetch_any(skv_spill *s, const skv_spill_name *names, size_t n)
{
    return begin_fetch(s, names, n, true);
}

skv_spill_item *skv_spill_fetch_next(skv_spill_fetch *f)
{
    skv_spill *s = f->spill;
    pthread_mutex_lock(&s->lock);
    skv_spill_item *item = f->first;
    if (item) {
        f->first = item->next;
        if (!f->first) f->last = NULL;
        s->arrived_bytes -= bytes_of(s, item);
        (void)pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return item;
}

bool skv_spill_fetch_done(skv_spill_fetch *f)
{
    pthread_mutex_lock(&f->spill->lock);
    bool done = !f->first && (f->failed || f->n_read == f->n);
    pthread_mutex_unlock(&f->spill->lock);
    return done;
}

void skv_spill_fetch_end(skv_spill_fetch *f)
{
    if (!f) return;
    skv_spill *s = f->spill;
    pthread_mutex_lock(&s->lock);
    skv_spill_fetch **at = &s->fetches;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    f->ended = true;
    if (!f->reading) free_fetch(f);
    (void)pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

static bool load_text(skv_spill *s, const skv_spill_name *name, skv_spill_item **item)
{
    skv_error err;
    skv_status status = s->medium->read(s, name, item, &err);
    bool is_text = status == SKV_OK && (*item)->kind == SKV_SPILL_TEXT;
    if (status == SKV_FORMAT) {
        s->medium->remove(s, name);
        pthread_mutex_lock(&s->lock);
        forget(s, name, status, err.text);
        pthread_mutex_unlock(&s->lock);
    }
    if (status == SKV_OK && !is_text) skv_free(*item);
    return is_text;
}

void skv_spill_load_texts(skv_spill *s,
                          void (*take)(void *user, uint64_t domain, uint64_t key,
                                       const int32_t *ids, size_t n_ids),
                          void *user)
{
    for (size_t i = 0; i < s->n_texts; i++) {
        skv_spill_item *item;
        uint64_t place[2];
        if (!load_text(s, &s->texts[i], &item)) continue;
        memcpy(place, item->parent.bytes, sizeof place);
        take(user, place[0], place[1], item->ids, item->n_ids);
        skv_free(item);
    }
    skv_free(s->texts);
    s->texts = NULL;
    s->n_texts = 0;
}

void skv_spill_get_stats(skv_spill *s, skv_spill_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    out->n_bytes = s->list.n_bytes;
    out->n_files = s->list.entries.n;
    out->n_up = s->store_state.n_up;
    pthread_mutex_unlock(&s->lock);
}

/* ---- life ---- */

static void free_spill(skv_spill *s)
{
    s->medium->release(s);
    skv_spill_list_release(&s->list);
    skv_spill_pins_release(&s->pins);
    skv_free(s->texts);
    skv_free(s->folder);
    skv_free(s);
}

/* Half of a folder's bytes; the size of a store is unknown, so a number of items. */
static size_t most_pinned(const skv_spill *s)
{
    return s->folder ? s->options.bytes_max / 2 : SKV_SPILL_PINS_MAX;
}

skv_status skv_spill_open(const skv_spill_options *options, skv_spill **out, skv_error *err)
{
    const char *what = options->folder ? "cache-dir" : "cache-store";
    skv_spill *s = skv_alloc_zero(1, sizeof *s);
    SKV_REQUIRE(s, err, SKV_MEMORY, "%s: no memory", what);
    s->options = *options;
    s->medium = options->folder ? skv_spill_medium_folder() : skv_spill_medium_store();
    s->place = (skv_spill_place){.folder_fd = -1, .form.page_bytes = options->page_bytes};
    s->lock_fd = -1;
    skv_status status = s->medium->prepare(s, err);
    if (status == SKV_OK) status = skv_spill_pins_init(&s->pins, most_pinned(s), err);
    s->options.secret = NULL;
    s->options.store = NULL;
    if (status != SKV_OK) {
        free_spill(s);
        return status;
    }
    (void)pthread_mutex_init(&s->lock, NULL);
    skv_cond_init(&s->wake);
    skv_cond_init(&s->moved);
    if (s->medium->tend) s->medium->tend(s, &s->store_state); /* for the first request */
    if (pthread_create(&s->thread, NULL, work, s) != 0) {
        free_spill(s);
        return skv_fail(err, SKV_MEMORY, "%s: cannot start a thread", what);
    }
    *out = s;
    return SKV_OK;
}

void skv_spill_close(skv_spill *s, double seconds)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    s->give_up_ns = skv_clock_ns() + (uint64_t)(seconds * 1e9);
    (void)pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    while (s->first) {
        skv_spill_item *item = s->first;
        s->first = item->next;
        skv_free(item);
    }
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->wake);
    (void)pthread_cond_destroy(&s->moved);
    free_spill(s);
}
