/* Dicts with the order of insertion, keyed by any hashable value. */
#ifndef SKV_TEXT_JINJA_DICT_H
#define SKV_TEXT_JINJA_DICT_H

#include "text/jinja/jinja_arena.h"
#include "text/jinja/jinja_value.h"

uint64_t skv_jdict_hash_text(const skv_jstr *text);
/** The hash of a key; false for what Python cannot hash (lists, dicts). Equal numbers agree. */
bool skv_jdict_hash(skv_jv key, uint64_t *hash);
/** The value of a key or NULL. */
const skv_jv *skv_jdict_find(const skv_jdict *dict, skv_jv key, uint64_t hash);
/** Adds or replaces; false without memory. */
bool skv_jdict_put(skv_jarena *arena, skv_jdict *dict, uint64_t hash, skv_jv key, skv_jv value);

/** Find and put with a C string or a skv_jstr as the key. */
const skv_jv *skv_jdict_get(const skv_jdict *dict, const skv_jstr *key);
const skv_jv *skv_jdict_get_text(const skv_jdict *dict, const char *key);

/** Python's == for what can be a key; lists and dicts are compared by jinja_compare.c. */
bool skv_jdict_same_key(skv_jv a, skv_jv b);

#endif
