/*
 * The shared store of the prefix cache. The program brings the functions that move bytes; the
 * values are items as spill_item.h has them, sealed, since others may write to the store. It is a
 * cache and never an authority: every value is checked before anything is made of it, and a value
 * that fails counts as absent.
 *
 * The list has the names of the items that the store is believed to have, so that they are not sent
 * again: a bounded number, forgotten when an instance comes back, which may have lost its own.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "kv/kv_cache.h"
#include "scheduler/spill_impl.h"

enum { NAMES_MAX = 1 << 17 };

static skv_status prepare(skv_spill *s, skv_error *err)
{
    s->store = *s->options.store;
    SKV_REQUIRE(s->options.secret, err, SKV_ARGUMENT, "cache-store: needs a key for its blocks");
    memcpy(s->secret, s->options.secret, sizeof s->secret);
    skv_spill_set_fingerprint(s);
    skv_sha256 sha;
    static const char tag[] = "seal";
    skv_sha256_init(&sha);
    skv_sha256_add(&sha, s->secret, sizeof s->secret);
    skv_sha256_add(&sha, tag, sizeof tag);
    skv_sha256_end(&sha, s->seal_key);
    s->place.form.seal_key = s->seal_key;
    SKV_TRY(skv_spill_list_init(&s->list, NAMES_MAX, err));
    return s->store.open(s->store.user, &s->store_link, err);
}

static void release(skv_spill *s)
{
    if (s->store_link) s->store.close(s->store_link);
}

static skv_status write_value(skv_spill *s, const skv_spill_item *item, skv_error *err)
{
    const skv_spill_form *form = &s->place.form;
    skv_spill_header header;
    skv_spill_item_encode(form, item, &header);
    size_t n_bytes = skv_spill_item_bytes(item->n_ids, item->n_pages, form->page_bytes);
    const skv_block_value value = {.head = &header,
                                   .n_head = sizeof header,
                                   .body = item->ids,
                                   .n_body = n_bytes - sizeof header};
    return s->store.put(s->store_link, item->name.bytes, &value, err);
}

/* A value of the right length, with a valid header. */
static skv_status read_item(const skv_spill_form *form, const skv_spill_name *name,
                            const unsigned char *data, size_t n_bytes, skv_spill_item **out,
                            skv_error *err)
{
    skv_spill_header header;
    size_t n_body;
    SKV_REQUIRE(n_bytes >= sizeof header, err, SKV_FORMAT, "%zu bytes are no block", n_bytes);
    memcpy(&header, data, sizeof header);
    SKV_TRY(skv_spill_header_check(form, name, &header, n_bytes, err));
    SKV_TRY(skv_spill_item_begin(&header, out, &n_body, err));
    memcpy((*out)->ids, data + sizeof header, n_body);
    skv_status status = skv_spill_item_check(form, &header, *out, err);
    if (status != SKV_OK) {
        skv_free(*out);
        *out = NULL;
    }
    return status;
}

static skv_status read_value(skv_spill *s, const skv_spill_name *name, skv_spill_item **out,
                             skv_error *err)
{
    const unsigned char *data = NULL;
    size_t n_bytes = 0;
    size_t n_max = skv_spill_item_bytes(SKV_PAGE_ROWS, s->options.pages_max, s->options.page_bytes);
    SKV_TRY(s->store.get(s->store_link, name->bytes, n_max, &data, &n_bytes, err));
    SKV_REQUIRE(data, err, SKV_RANGE, "not there");
    return read_item(&s->place.form, name, data, n_bytes, out, err);
}

/* The store manages its own contents: nothing is removed, bad values are written over. */
static void leave(skv_spill *s, const skv_spill_name *name)
{
    (void)s;
    (void)name;
}

static void pin(skv_spill *s, const skv_spill_name *names, size_t n)
{
    static_assert(sizeof *names == SKV_CACHE_NAME_BYTES, "names lie one after the other");
    if (s->store.touch) s->store.touch(s->store_link, names->bytes, n);
}

static void tend(skv_spill *s, skv_block_store_state *state)
{
    s->store.tend(s->store_link, state);
}

const skv_spill_medium *skv_spill_medium_store(void)
{
    static const skv_spill_medium medium = {.prepare = prepare,
                                            .release = release,
                                            .write = write_value,
                                            .read = read_value,
                                            .remove = leave,
                                            .touch = leave,
                                            .pin = pin,
                                            .tend = tend};
    return &medium;
}
