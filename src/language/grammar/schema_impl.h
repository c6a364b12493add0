/*
 * Declarations shared by the files that read JSON schemas. docs/reference/grammar.md describes the
 * supported keywords.
 *
 * Everything counts in the budget of `exprs`: work, the values of jansson, depth. Objects, arrays
 * and targets of $ref become rules that are filled one after the other (tasks), so that schemas
 * inside them take no stack. Nested choices do recurse, and count in the budget's depth.
 */
#ifndef SKV_GRAMMAR_SCHEMA_IMPL_H
#define SKV_GRAMMAR_SCHEMA_IMPL_H

#include <jansson.h>

#include "base/buf.h"
#include "grammar/json_rules.h"
#include "grammar/json_set.h"

/* The part of a schema that a rule represents. */
typedef enum skv_schema_part {
    SKV_SCHEMA_ALL,    /* every value */
    SKV_SCHEMA_OBJECT, /* the objects */
    SKV_SCHEMA_ARRAY   /* the arrays */
} skv_schema_part;

/* A rule that is to be filled. */
typedef struct skv_schema_task {
    const json_t *node; /* borrowed */
    skv_schema_part part;
    uint32_t rule;
    size_t depth;        /* schemas around it */
    size_t path, n_path; /* its path: a part of s->paths */
} skv_schema_task;

/* Strings of a length or a format, which have a rule for all that ask for the same. */
typedef struct skv_shared_string {
    int format; /* SKV_FORMAT_UNKNOWN: none */
    uint32_t min, max, rule;
} skv_shared_string;

typedef struct skv_schema {
    skv_exprs *exprs; /* borrowed */
    skv_json_rules rules;
    bool loose;                 /* unsupported keywords are ignored, not refused */
    const json_t *root;         /* borrowed */
    json_t **made;              /* owned, [n_made] the joined schemas, all kept to the end */
    skv_schema_task *tasks;     /* owned, [n_tasks], done in order */
    char *paths;                /* owned, [n_paths] */
    skv_json_set refs;          /* by identity: the schemas with a rule, which are targets of
                                 * $ref */
    uint32_t *ref_rules;        /* owned, [refs.n] */
    skv_shared_string *strings; /* owned, [n_strings] */
    size_t n_made, n_tasks, n_paths, n_strings;
    size_t made_capacity, tasks_capacity, paths_capacity, ref_rules_capacity, strings_capacity;
    size_t n_lengths;  /* characters that `strings` may have together */
    size_t json_bytes; /* of joined schemas, counted in the budget */
    size_t depth;      /* of the budget where the schema began */
    skv_buf path;      /* of the schema being read, "/properties/a" */
    skv_buf key;       /* a step of a $ref */
    skv_error *err;
} skv_schema;

/** Fails with the path as prefix: "json schema: /items: MESSAGE". */
SKV_MUST_CHECK skv_status skv_schema_fail(skv_schema *s, skv_status status, const char *format, ...)
    SKV_PRINTF(3, 4);
/** As skv_schema_fail, for a known keyword that is not supported here. */
SKV_MUST_CHECK skv_status skv_schema_refuse(skv_schema *s, const char *keyword);
/** Counts work, and memory of jansson that is held to the end; fails when a limit is exceeded. */
SKV_MUST_CHECK skv_status skv_schema_count(skv_schema *s, uint64_t work, size_t n_bytes);
/** Returns the error of an allocation that the budget may have refused. */
SKV_MUST_CHECK skv_status skv_schema_no_memory(skv_schema *s);

/** Compiles a schema at path/key (key NULL: at the path itself) to an expression. */
SKV_MUST_CHECK skv_status skv_schema_compile(skv_schema *s, const json_t *node, const char *key,
                                             skv_expr *out);
/** Only the keywords that concern one type. */
SKV_MUST_CHECK skv_status skv_schema_object(skv_schema *s, const json_t *node, skv_expr *out);
/** An object without declared names, if the schema restricts all its names or their number.
 * `followed` false: it does not, or the restriction is ignored. `declares`: there are declared
 * names, and such restrictions beside them are refused. */
SKV_MUST_CHECK skv_status skv_schema_map(skv_schema *s, const json_t *node, bool declares,
                                         bool *followed, skv_expr *out);
SKV_MUST_CHECK skv_status skv_schema_array(skv_schema *s, const json_t *node, skv_expr *out);
SKV_MUST_CHECK skv_status skv_schema_string(skv_schema *s, const json_t *node, skv_expr *out);
SKV_MUST_CHECK skv_status skv_schema_number(skv_schema *s, const json_t *node, bool whole,
                                            skv_expr *out);

/** One value, spelled canonically, blanks where JSON has them. */
skv_expr skv_schema_literal(skv_schema *s, const json_t *value);
/* A declared name; NEVER after it: not allowed among undeclared members. */
typedef struct skv_schema_name {
    const char *text; /* borrowed, zero-terminated, [n] */
    size_t n;
    skv_expr after; /* the colon and the value */
} skv_schema_name;
/** The rest of a member after its first quotation mark: a canonical name that is none of `names`,
 * followed by `after`, or one of `names` with its own continuation. Sorts names; no two are
 * equal. */
skv_expr skv_schema_other_member(skv_schema *s, skv_schema_name *names, size_t n, skv_expr after);

/** Returns the target of a schema's "$ref". */
SKV_MUST_CHECK skv_status skv_schema_resolve(skv_schema *s, const json_t *referrer,
                                             const json_t **out);
/**
 * The schema that asks for all that `node` does, its $ref and its allOf included, but for the
 * keyword `without` (NULL: none left out), and for all that `branch` asks (NULL: nothing). It has
 * no $ref and no allOf, and is borrowed from s.
 */
SKV_MUST_CHECK skv_status skv_schema_join(skv_schema *s, const json_t *node, const char *without,
                                          const json_t *branch, const json_t **out);

/** {"pattern": text}, borrowed from s. */
SKV_MUST_CHECK skv_status skv_schema_new_pattern(skv_schema *s, const char *text, json_t **out);

/** Whether the keyword constrains values in a way that this program supports, is an annotation, or
 * is unsupported. */
typedef enum skv_keyword_use {
    SKV_KEYWORD_USED,
    SKV_KEYWORD_NOTE,
    SKV_KEYWORD_UNKNOWN
} skv_keyword_use;
skv_keyword_use skv_schema_keyword(const char *keyword);
/** Whether a keyword is about values of this type alone; NULL: about all. */
const char *skv_schema_keyword_type(const char *keyword);

/* The formats of strings: schema_formats.c. */
enum { SKV_FORMAT_UNKNOWN = -1, SKV_FORMAT_PATTERN_MAX = 4096 };
/** Finds a format by name; SKV_FORMAT_UNKNOWN if there is none. */
int skv_schema_format_find(const char *name);
/** Whether any string is of it. */
bool skv_schema_format_is_free(int format);
/** Whether its pattern can keep these bounds of the length. */
bool skv_schema_format_holds(int format, uint32_t min, uint32_t max);
/** The pattern of a format that is not free, for strings of at most max characters. */
void skv_schema_format_pattern(int format, uint32_t max, char out[SKV_FORMAT_PATTERN_MAX]);

/** Returns an equivalent pattern without lookahead for pydantic's patterns of decimals, written to
 * `out`; returns any other pattern unchanged. */
const char *skv_schema_plain_pattern(const char *pattern, char out[SKV_FORMAT_PATTERN_MAX]);

/* Strings of all these expressions over characters (of skv_expr_set), with min to max of them. */
typedef struct skv_product {
    const skv_expr *of; /* borrowed, [n], n at least 1 */
    size_t n;
    uint32_t min, max;
    size_t n_states; /* states, and edges, that it may have; then, how many it has */
} skv_product;
/** The inside of these strings, each character spelled as by skv_json_char: schema_product.c.
 * False: it has too many states, or there is no memory. */
SKV_MUST_CHECK bool skv_schema_product(skv_exprs *exprs, skv_product *product, skv_expr *out);

/** A non-negative integer; `fallback` where the keyword is absent, or too large and may be left
 * out. */
SKV_MUST_CHECK skv_status skv_schema_integer(skv_schema *s, const json_t *node, const char *key,
                                             uint32_t fallback, uint32_t *out);

/* The types, and sets of them: the bit 1 << SKV_TYPE_OBJECT and so on. */
typedef enum skv_schema_type {
    SKV_TYPE_OBJECT,
    SKV_TYPE_ARRAY,
    SKV_TYPE_STRING,
    SKV_TYPE_NUMBER,
    SKV_TYPE_INTEGER,
    SKV_TYPE_BOOLEAN,
    SKV_TYPE_NULL,
    SKV_N_TYPES
} skv_schema_type;
const char *skv_schema_type_name(skv_schema_type type);
/** The types that the value of the keyword "type" names, a text or a list of texts. */
SKV_MUST_CHECK skv_status skv_schema_types(skv_schema *s, const json_t *value, unsigned *out);
/** The types that a schema allows; all where it names none. */
SKV_MUST_CHECK skv_status skv_schema_allowed_types(skv_schema *s, const json_t *node,
                                                   unsigned *out);
/** The types that a value is of: an integer is a number too. */
unsigned skv_schema_types_of(const json_t *value);

#endif
