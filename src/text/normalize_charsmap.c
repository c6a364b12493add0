/*
 * SentencePiece's precompiled character map. Bytes: u32 size of the trie, the trie's units
 * (u32, little endian), then the replacement texts. A unit is Darts' packed node: bits 0-7 label
 * (bit 31 set in leaves, whose low bits are the offset of the replacement), bit 8 "a leaf hangs
 * here", bits 10-30 offset, bit 9 scales it by 256.
 */
#include <string.h>

#include "base/mem.h"
#include "text/normalize.h"

skv_status skv_charsmap_parse(skv_charsmap *map, const void *data, size_t n, const char *name,
                              skv_error *err)
{
    const unsigned char *bytes = data;
    uint32_t trie_bytes;
    *map = (skv_charsmap){0};
    if (n == 0) return SKV_OK;
    SKV_REQUIRE(n > 4, err, SKV_FORMAT, "%s: precompiled_charsmap of %zu bytes", name, n);
    trie_bytes = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                 (uint32_t)bytes[3] << 24;
    SKV_REQUIRE(trie_bytes < n - 4 && trie_bytes % 4 == 0 && trie_bytes > 0, err, SKV_FORMAT,
                "%s: precompiled_charsmap says %u bytes of trie, it has %zu in all", name,
                (unsigned)trie_bytes, n);
    map->n_units = trie_bytes / 4;
    map->n_texts = n - 4 - trie_bytes;
    map->units = skv_alloc(map->n_units, sizeof *map->units);
    map->texts = skv_strndup((const char *)bytes + 4 + trie_bytes, map->n_texts);
    if (map->units == NULL || map->texts == NULL) {
        skv_charsmap_release(map);
        return skv_fail(err, SKV_MEMORY, "%s: no memory for precompiled_charsmap", name);
    }
    for (size_t i = 0; i < map->n_units; i++) {
        const unsigned char *at = bytes + 4 + i * 4;
        map->units[i] =
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    }
    return SKV_OK;
}

void skv_charsmap_release(skv_charsmap *map)
{
    skv_free(map->units);
    skv_free(map->texts);
    *map = (skv_charsmap){0};
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

size_t skv_charsmap_find(const skv_charsmap *map, const char *text, size_t n, const char **to,
                         size_t *n_to)
{
    size_t length = 0;
    if (map->n_units == 0) return 0;
    size_t node = offset_of(map->units[0]);
    for (size_t i = 0; i < n && text[i] != 0; i++) {
        unsigned char byte = (unsigned char)text[i];
        node ^= byte;
        if (node >= map->n_units) break;
        uint32_t unit = map->units[node];
        if ((unit & (1u << 31 | 0xffu)) != byte) break;
        node ^= offset_of(unit);
        if ((unit & 1u << 8) == 0) continue;
        if (node >= map->n_units) break;
        size_t at = map->units[node] & 0x7fffffffu;
        if (at >= map->n_texts) continue;
        length = i + 1;
        *to = map->texts + at;
        *n_to = strlen(*to); /* the copy of the texts is terminated */
    }
    return length;
}
