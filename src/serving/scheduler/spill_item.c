/* An item of the spilled prefix cache as bytes: see spill_item.h. */
#include "scheduler/spill_item.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

static const char magic[] = "SKVSPILL";
enum { VERSION = 1, PAGES_MAX = 1 << 20 };

/* ---- checksums: four lanes, each step reversible, so that no single change cancels out ---- */

static uint64_t stir(uint64_t lane, uint64_t word)
{
    lane = (lane ^ word) * 0x9fb21c651e98df25u;
    return lane ^ lane >> 29;
}

uint64_t skv_spill_checksum(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint64_t lanes[4] = {n, 0x243f6a8885a308d3u, 0x13198a2e03707344u, 0xa4093822299f31d0u};
    uint64_t words[4] = {0};
    for (; n >= sizeof words; n -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (size_t i = 0; i < 4; i++) lanes[i] = stir(lanes[i], words[i]);
    }
    memset(words, 0, sizeof words);
    if (n > 0) memcpy(words, at, n);
    for (size_t i = 0; i < 4; i++) lanes[i] = stir(lanes[i], words[i]);
    uint64_t sum = lanes[0];
    for (size_t i = 1; i < 4; i++) sum = stir(sum, lanes[i]);
    return stir(sum, 0);
}

/* ---- items and names ---- */

size_t skv_spill_item_bytes(size_t n_ids, size_t n_pages, size_t page_bytes)
{
    return sizeof(skv_spill_header) + n_ids * sizeof(int32_t) + n_pages * page_bytes;
}

skv_spill_item *skv_spill_item_create(size_t n_ids, size_t n_pages, size_t page_bytes)
{
    size_t n_bytes;
    if (n_ids > SKV_SPILL_IDS_MAX || n_pages > PAGES_MAX) return NULL;
    if (!skv_size_mul(n_pages, page_bytes, &n_bytes)) return NULL;
    if (!skv_size_add(n_bytes, sizeof(skv_spill_item) + n_ids * sizeof(int32_t), &n_bytes)) {
        return NULL;
    }
    skv_spill_item *item = skv_alloc(1, n_bytes);
    if (!item) return NULL;
    *item = (skv_spill_item){.n_ids = n_ids, .n_pages = n_pages};
    item->pages = (unsigned char *)(item->ids + n_ids);
    return item;
}

/* ---- out ---- */

static size_t body_bytes(const skv_spill_form *form, const skv_spill_item *item)
{
    return item->n_ids * sizeof *item->ids + item->n_pages * form->page_bytes;
}

/* The keyed checksum of a header without it, and of the body. */
static void seal(const skv_spill_form *form, const skv_spill_header *h, const skv_spill_item *item,
                 uint8_t out[SKV_SHA256_BYTES])
{
    skv_spill_header plain = *h;
    skv_hmac hmac;
    memset(plain.seal, 0, sizeof plain.seal);
    skv_hmac_init(&hmac, form->seal_key, SKV_SHA256_BYTES);
    skv_hmac_add(&hmac, &plain, offsetof(skv_spill_header, check));
    skv_hmac_add(&hmac, item->ids, body_bytes(form, item));
    skv_hmac_end(&hmac, out);
}

void skv_spill_item_encode(const skv_spill_form *form, const skv_spill_item *item,
                           skv_spill_header *h)
{
    static_assert(sizeof *h == 128 && sizeof(skv_spill_name) == 16, "they lie on disk");
    *h = (skv_spill_header){.version = VERSION,
                            .kind = (uint32_t)item->kind,
                            .n_ids = (uint32_t)item->n_ids,
                            .n_pages = (uint32_t)item->n_pages,
                            .page_bytes = form->page_bytes,
                            .fingerprint = form->fingerprint,
                            .name = item->name,
                            .parent = item->parent,
                            .body_check = skv_spill_checksum(item->ids, body_bytes(form, item))};
    memcpy(h->magic, magic, sizeof h->magic);
    if (form->seal_key) seal(form, h, item, h->seal);
    h->check = skv_spill_checksum(h, offsetof(skv_spill_header, check));
}

/* ---- and back ---- */

skv_status skv_spill_header_check(const skv_spill_form *form, const skv_spill_name *name,
                                  const skv_spill_header *h, size_t n_bytes, skv_error *err)
{
    SKV_REQUIRE(memcmp(h->magic, magic, sizeof h->magic) == 0 &&
                    h->check == skv_spill_checksum(h, offsetof(skv_spill_header, check)),
                err, SKV_FORMAT, "the header is damaged");
    SKV_REQUIRE(h->version == VERSION && memcmp(&h->name, name, sizeof *name) == 0 &&
                    memcmp(&h->fingerprint, &form->fingerprint, sizeof *name) == 0,
                err, SKV_FORMAT, "another model's, or another version's");
    bool has_pages =
        h->kind == SKV_SPILL_BLOCK || h->kind == SKV_SPILL_ROWS || h->kind == SKV_SPILL_STATE;
    bool is_block = has_pages && h->n_pages > 0 && h->n_pages <= PAGES_MAX;
    bool is_text = h->kind == SKV_SPILL_TEXT && h->n_pages == 0;
    SKV_REQUIRE((is_block || is_text) && h->n_ids > 0 && h->n_ids <= SKV_SPILL_IDS_MAX &&
                    h->page_bytes == form->page_bytes &&
                    n_bytes == skv_spill_item_bytes(h->n_ids, h->n_pages, form->page_bytes),
                err, SKV_FORMAT, "%zu bytes, which is not what the header says", n_bytes);
    return SKV_OK;
}

skv_status skv_spill_item_begin(const skv_spill_header *h, skv_spill_item **out, size_t *n_body,
                                skv_error *err)
{
    skv_spill_item *item = skv_spill_item_create(h->n_ids, h->n_pages, (size_t)h->page_bytes);
    *n_body = skv_spill_item_bytes(h->n_ids, h->n_pages, (size_t)h->page_bytes) - sizeof *h;
    SKV_REQUIRE(item, err, SKV_MEMORY, "no memory for %zu bytes", *n_body);
    item->kind = (skv_spill_kind)h->kind;
    item->name = h->name;
    item->parent = h->parent;
    *out = item;
    return SKV_OK;
}

skv_status skv_spill_item_check(const skv_spill_form *form, const skv_spill_header *h,
                                const skv_spill_item *item, skv_error *err)
{
    SKV_REQUIRE(skv_spill_checksum(item->ids, body_bytes(form, item)) == h->body_check, err,
                SKV_FORMAT, "the content is damaged");
    if (!form->seal_key) return SKV_OK;
    uint8_t want[SKV_SHA256_BYTES];
    seal(form, h, item, want);
    SKV_REQUIRE(memeql_sec(want, h->seal, sizeof want), err, SKV_FORMAT,
                "the keyed checksum is not ours");
    return SKV_OK;
}
