/* What the files that read JSON schemas share: see docs/grammar.md for what a schema may say. */
#ifndef SKV_GRAMMAR_SCHEMA_IMPL_H
#define SKV_GRAMMAR_SCHEMA_IMPL_H

#include <jansson.h>

#include "grammar/json_rules.h"

enum {
    SKV_SCHEMA_DEPTH_MAX = 100,  /* schemas inside schemas, references followed */
    SKV_SCHEMA_MERGES_MAX = 2000 /* schemas made by joining two */
};

/* A schema that has a rule of its own: what a $ref names. */
typedef struct skv_schema_ref {
    const json_t *node; /* borrowed */
    uint32_t rule;
} skv_schema_ref;

typedef struct skv_schema {
    skv_expr_pool *pool; /* borrowed */
    skv_json_rules rules;
    const json_t *root;   /* borrowed */
    json_t *made;         /* owned: an array that keeps the joined schemas */
    skv_schema_ref *refs; /* owned */
    size_t n_refs, refs_capacity;
    skv_buf path; /* of the schema being read, "/properties/a" */
    size_t depth;
    skv_error *err;
} skv_schema;

/** Fails with the path in front: "json schema: /items: what". */
SKV_MUST_CHECK skv_status skv_schema_fail(skv_schema *s, skv_status status, const char *format, ...)
    SKV_PRINTF(3, 4);
/** The same for a keyword that is known but cannot be had here. */
SKV_MUST_CHECK skv_status skv_schema_refuse(skv_schema *s, const char *keyword);

/** The expression of a schema that stands at path/key (key NULL: at the path itself). */
SKV_MUST_CHECK skv_status skv_schema_compile(skv_schema *s, const json_t *node, const char *key,
                                             skv_expr *out);
/** Only the keywords that concern one type. */
SKV_MUST_CHECK skv_status skv_schema_object(skv_schema *s, const json_t *node, skv_expr *out);
SKV_MUST_CHECK skv_status skv_schema_array(skv_schema *s, const json_t *node, skv_expr *out);
SKV_MUST_CHECK skv_status skv_schema_string(skv_schema *s, const json_t *node, skv_expr *out);
SKV_MUST_CHECK skv_status skv_schema_number(skv_schema *s, const json_t *node, bool whole,
                                            skv_expr *out);

/** One value, spelled canonically, blanks where JSON has them. */
skv_expr skv_schema_literal(skv_schema *s, const json_t *value);

/** What the "$ref" of a schema names. */
SKV_MUST_CHECK skv_status skv_schema_resolve(skv_schema *s, const json_t *referrer,
                                             const json_t **out);
/** The schema that asks for both; borrowed from s->made. */
SKV_MUST_CHECK skv_status skv_schema_join(skv_schema *s, const json_t *a, const json_t *b,
                                          const json_t **out);
/** The schema without one keyword; borrowed from s->made. */
SKV_MUST_CHECK skv_status skv_schema_without(skv_schema *s, const json_t *node, const char *key,
                                             const json_t **out);

/** Whether the keyword says something about a value that this program can follow, nothing at all
 * (annotations), or something that it cannot. */
typedef enum skv_keyword_use {
    SKV_KEYWORD_USED,
    SKV_KEYWORD_NOTE,
    SKV_KEYWORD_UNKNOWN
} skv_keyword_use;
skv_keyword_use skv_schema_keyword(const char *keyword);
/** Whether a keyword is about values of this type alone; NULL: about all. */
const char *skv_schema_keyword_type(const char *keyword);

/** A non-negative integer; `fallback` where the keyword is absent. */
SKV_MUST_CHECK skv_status skv_schema_count(skv_schema *s, const json_t *node, const char *key,
                                           uint32_t fallback, uint32_t *out);

/** The array whose member `want` is true for: type lists. */
bool skv_schema_has_type(const json_t *node, const char *type);

#endif
