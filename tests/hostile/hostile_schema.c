/* Hostile JSON schemas, and random JSON values: see hostile.h. */
#include "hostile_maker.h"

/* ---- values ---- */

void hostile_value(hostile_maker *m, size_t depth, size_t n_bytes)
{
    size_t end = m->to->size + n_bytes, n = hostile_size(m, 1, n_bytes / 4 + 1);
    size_t kind = depth > 0 ? hostile_below(m, 8) : 2 + hostile_below(m, 6);
    if (kind < 2) {
        hostile_put(m, kind == 0 ? "[" : "{");
        for (size_t i = 0; i < n && m->to->size < end; i++) {
            hostile_put(m, "%s", i > 0 ? "," : "");
            if (kind == 1) {
                hostile_put(m, "\"");
                hostile_name(m, i, hostile_size(m, 1, n_bytes / n + 1));
                hostile_put(m, "\":");
            }
            hostile_value(m, depth - 1, hostile_left(m, end) / (n - i) + 1);
        }
        hostile_put(m, kind == 0 ? "]" : "}");
        return;
    }
    switch (kind) {
    case 2:
        hostile_put(m, "\"");
        hostile_name(m, hostile_below(m, 1000), hostile_size(m, 1, n_bytes));
        hostile_put(m, "\\u00e4\\n\"");
        break;
    case 3: hostile_put(m, "%zu", hostile_size(m, 0, (size_t)1 << 60)); break;
    case 4: hostile_put(m, "-%zu.5e%zu", hostile_size(m, 0, 999), hostile_size(m, 0, 309)); break;
    case 5: hostile_put(m, "true"); break;
    case 6: hostile_put(m, "null"); break;
    default: hostile_put(m, "\"\""); break;
    }
}

/* ---- schemas ---- */

static void put_names(hostile_maker *m, size_t n, size_t n_name, const char *behind)
{
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s\"", i > 0 ? "," : "");
        hostile_name(m, i, n_name);
        hostile_put(m, "\"%s", behind);
    }
}

static void put_additional(hostile_maker *m)
{
    static const char *const values[] = {"true", "false", "{}", "{\"type\":\"integer\"}"};
    hostile_put(m, ",\"additionalProperties\":%s", values[hostile_below(m, 4)]);
}

/* Many or long names. */
static void make_names(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 8), n_name = hostile_size(m, 1, m->room / (2 * n) + 1);
    static const char *const values[] = {":{}", ":{\"type\":\"integer\"}", ":true",
                                         ":{\"type\":\"string\",\"maxLength\":50}"};
    hostile_put(m, "{\"type\":\"object\"");
    if (hostile_chance(m, 80)) {
        hostile_put(m, ",\"properties\":{");
        put_names(m, n, n_name, values[hostile_below(m, 4)]);
        hostile_put(m, "}");
    }
    if (hostile_chance(m, 50)) {
        hostile_put(m, ",\"required\":[");
        m->room += m->room / 4;
        put_names(m, n, n_name, "");
        hostile_put(m, "]");
    }
    if (hostile_chance(m, 80)) put_additional(m);
    hostile_put(m, "}");
}

static void put_definition(hostile_maker *m, size_t form, size_t n, size_t n_name, size_t i)
{
    hostile_put(m, "%s\"d%zu\":{", i > 0 ? "," : "", i);
    switch (form) {
    case 0:
        hostile_put(m, "\"required\":[");
        put_names(m, n, n_name, "");
        hostile_put(m, "]");
        break;
    case 1:
        hostile_put(m, "\"enum\":[");
        put_names(m, n, n_name, "");
        hostile_put(m, "]");
        break;
    case 2:
        hostile_put(m, "\"properties\":{");
        put_names(m, n, n_name, ":{}");
        hostile_put(m, "}");
        break;
    default:
        hostile_put(m, "\"anyOf\":[");
        for (size_t k = 0; k < n && !hostile_full(m); k++) {
            hostile_put(m, "%s{\"maxLength\":%zu}", k > 0 ? "," : "", k);
        }
        hostile_put(m, "]");
        break;
    }
    hostile_put(m, "}");
}

/* Joins of many references to a few large lists, or of many empty schemas. */
static void make_joins(hostile_maker *m)
{
    size_t n_defs = hostile_size(m, 1, 6), n_refs = hostile_size(m, 1, m->room / 60 + 1);
    size_t room = m->room, form = hostile_below(m, 4);
    size_t n = hostile_size(m, 1, room / (6 * n_defs)),
           n_name = hostile_size(m, 1, room / (2 * n * n_defs) + 1);
    bool empty = hostile_chance(m, 20), same = hostile_chance(m, 60);
    m->room = room / 3 * 2;
    hostile_put(m, "{\"$defs\":{");
    for (size_t i = 0; i < n_defs; i++) {
        put_definition(m, same ? form : hostile_below(m, 4), i % 2 == 0 ? n : 1, n_name, i);
    }
    m->room = room;
    hostile_put(m, "},\"%s\":[{\"type\":\"%s\"}", hostile_chance(m, 85) ? "allOf" : "anyOf",
                form == 1 ? "string" : "object");
    for (size_t i = 0; i < n_refs && !hostile_full(m); i++) {
        hostile_put(m, empty ? ",{}" : ",{\"$ref\":\"#/$defs/d%zu\"}", i % n_defs);
    }
    hostile_put(m, "]}");
}

/* allOf of anyOf: the product of their branches. */
static void make_products(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, 200), n_branches = hostile_size(m, 1, m->room / (40 * n) + 2);
    static const char *const words[] = {"anyOf", "oneOf", "allOf"};
    hostile_put(m, "{\"allOf\":[");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s{\"%s\":[", i > 0 ? "," : "", words[hostile_below(m, 3)]);
        for (size_t k = 0; k < n_branches && !hostile_full(m); k++) {
            hostile_put(m, "%s{\"properties\":{\"p%zu\":{\"minimum\":%zu}}}", k > 0 ? "," : "",
                        i * n_branches + k, k);
        }
        hostile_put(m, "]}");
    }
    hostile_put(m, "]}");
}

static void put_reference(hostile_maker *m, size_t target)
{
    static const char *const open[] = {"",
                                       "{\"allOf\":[",
                                       "{\"items\":",
                                       "{\"properties\":{\"a\":",
                                       "{\"anyOf\":[{\"type\":\"null\"},",
                                       "{\"type\":\"object\",\"additionalProperties\":",
                                       "{\"maxLength\":5,\"allOf\":["};
    static const char *const close[] = {"", "]}", "}", "}}", "]}", "}", "]}"};
    size_t i = hostile_below(m, 7);
    hostile_put(m, "%s{\"$ref\":\"#/$defs/d%zu\"}%s", open[i], target, close[i]);
}

/* References in every form: chains, cycles, trees, many to many. */
static void make_references(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 40 + 1),
           n_refs = hostile_size(m, 1, m->room / (n * 40) + 1);
    hostile_net net = (hostile_net)hostile_below(m, HOSTILE_NETS);
    hostile_put(m, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (size_t i = 0; i < n; i++) {
        hostile_put(m, "%s\"d%zu\":", i > 0 ? "," : "", i);
        bool many = n_refs > 1;
        if (many) hostile_put(m, "{\"%s\":[", hostile_chance(m, 50) ? "allOf" : "anyOf");
        for (size_t k = 0; k < n_refs; k++) {
            size_t target = hostile_target(m, net, i, n);
            hostile_put(m, "%s", k > 0 ? "," : "");
            if (target < n && !hostile_full(m)) {
                put_reference(m, target);
            } else {
                hostile_put(m, "{\"type\":\"integer\"}");
            }
        }
        if (many) hostile_put(m, "]}");
    }
    hostile_put(m, "}}");
}

/* Schemas inside schemas. */
static void make_deep(hostile_maker *m)
{
    static const char *const open[] = {"{\"properties\":{\"a\":",
                                       "{\"items\":",
                                       "{\"anyOf\":[",
                                       "{\"allOf\":[",
                                       "{\"prefixItems\":[",
                                       "{\"type\":\"object\",\"additionalProperties\":"};
    static const char *const close[] = {"}}", "}", "]}", "]}", "]}", "}"};
    char path[512];
    size_t depth = hostile_limit(m, hostile_chance(m, 50) ? 64 : 100), form = hostile_below(m, 6);
    bool mix = hostile_chance(m, 50);
    if (depth > sizeof path) depth = sizeof path;
    for (size_t i = 0; i < depth; i++) {
        if (mix) form = hostile_below(m, 6);
        path[i] = (char)form;
        hostile_put(m, "%s", open[form]);
    }
    hostile_put(m, "{\"type\":\"integer\"}");
    for (size_t i = depth; i > 0; i--) hostile_put(m, "%s", close[(size_t)path[i - 1]]);
}

/* Counts inside counts. */
static void make_counts(hostile_maker *m)
{
    size_t depth = hostile_size(m, 0, 30);
    for (size_t i = 0; i < depth; i++) {
        unsigned long long a = hostile_times(m), b = hostile_times(m);
        hostile_put(m, "{\"type\":\"array\",\"minItems\":%llu,\"maxItems\":%llu,\"items\":",
                    a < b ? a : b, a < b ? b : a);
    }
    unsigned long long a = hostile_times(m), b = hostile_times(m);
    switch (hostile_below(m, 4)) {
    case 0:
        hostile_put(m, "{\"type\":\"string\",\"minLength\":%llu,\"maxLength\":%llu}", a, b);
        break;
    case 1:
        hostile_put(m, "{\"type\":\"string\",\"pattern\":\"");
        hostile_pattern(m, hostile_size(m, 1, m->room));
        hostile_put(m, "\"}");
        break;
    case 2: hostile_put(m, "{\"type\":\"string\",\"format\":\"date-time\"}"); break;
    default: hostile_put(m, "{\"type\":\"object\",\"additionalProperties\":true}"); break;
    }
    hostile_fill(m, "}", depth);
}

/* Large values, and many. */
static void make_values(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 4), depth = hostile_size(m, 0, 70);
    hostile_put(m, hostile_chance(m, 70) ? "{\"enum\":["
                                         : "{\"type\":[\"string\",\"object\"],\"enum\":[");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s", i > 0 ? "," : "");
        hostile_value(m, hostile_below(m, depth + 1), m->room / n);
    }
    hostile_put(m, "]}");
}

static void put_bound(hostile_maker *m, const char *name)
{
    size_t whole = hostile_limit(m, 40), fraction = hostile_limit(m, 40);
    hostile_put(m, ",\"%s\":%s1", name, hostile_chance(m, 50) ? "-" : "");
    for (size_t i = 0; i < whole; i++) hostile_put(m, "%zu", hostile_below(m, 10));
    if (hostile_chance(m, 60)) {
        hostile_put(m, ".");
        for (size_t i = 0; i < fraction; i++) hostile_put(m, "%zu", hostile_below(m, 10));
    }
    if (hostile_chance(m, 30))
        hostile_put(m, "e%s%zu", hostile_chance(m, 50) ? "-" : "", hostile_below(m, 310));
}

/* Numbers between bounds of many digits. */
static void make_numbers(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 120 + 1);
    hostile_put(m, "{\"properties\":{");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s\"n%zu\":{\"type\":\"%s\"", i > 0 ? "," : "", i,
                    hostile_chance(m, 50) ? "number" : "integer");
        if (hostile_chance(m, 70))
            put_bound(m, hostile_chance(m, 50) ? "minimum" : "exclusiveMinimum");
        if (hostile_chance(m, 70))
            put_bound(m, hostile_chance(m, 50) ? "maximum" : "exclusiveMaximum");
        hostile_put(m, "}");
    }
    hostile_put(m, "}}");
}

static void make_patterns(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, m->room / 20 + 1);
    hostile_put(m, "{\"properties\":{");
    for (size_t i = 0; i < n && !hostile_full(m); i++) {
        hostile_put(m, "%s\"p%zu\":{\"pattern\":\"", i > 0 ? "," : "", i);
        hostile_pattern(m, m->room / n);
        hostile_put(m, "\"}");
    }
    hostile_put(m, "}}");
}

/* A pointer as long as the way to what it names. */
static void make_pointers(hostile_maker *m)
{
    size_t depth = hostile_size(m, 1, 100), n = hostile_size(m, 1, m->room / 300 + 1);
    size_t n_name = hostile_size(m, 1, m->room / (2 * depth) + 1);
    hostile_put(m, "{\"$defs\":");
    for (size_t i = 0; i < depth; i++) {
        hostile_put(m, "{\"");
        hostile_name(m, i, n_name);
        hostile_put(m, "\":");
    }
    hostile_put(m, "{\"type\":\"null\"}");
    hostile_fill(m, "}", depth);
    hostile_put(m, ",\"anyOf\":[{}");
    for (size_t k = 0; k < n && !hostile_full(m); k++) {
        hostile_put(m, ",{\"$ref\":\"#/$defs");
        for (size_t i = 0; i < depth; i++) {
            hostile_put(m, "/");
            hostile_name(m, i, n_name);
        }
        hostile_put(m, "\"}");
    }
    hostile_put(m, "]}");
}

static void make_ordinary(hostile_maker *m)
{
    static const char *const texts[] = {
        "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},"
        "\"age\":{\"type\":\"integer\",\"minimum\":0}},\"required\":[\"name\",\"age\"]}",
        "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",3,null]},\"minItems\":1,\"maxItems\":"
        "9}",
        "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":"
        "{\"type\":\"number\"},\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
        "node\"},{\"type\":\"null\"}]}},"
        "\"required\":[\"v\",\"next\"]}}}",
        "{\"type\":\"object\",\"properties\":{\"when\":{\"type\":\"string\",\"format\":\"date\"},"
        "\"id\":{\"type\":\"string\",\"pattern\":\"^[a-z]{2}-[0-9]{4}$\"}},"
        "\"additionalProperties\":false}",
        "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"}}},"
        "{\"properties\":{\"b\":{\"type\":\"string\"}},\"required\":[\"b\"]}]}",
        "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}"};
    hostile_put(m, "%s", texts[hostile_below(m, 6)]);
}

/* Properties in the dozens, as tools have them. */
static void make_ordinary_wide(hostile_maker *m)
{
    size_t n = hostile_size(m, 1, 60);
    hostile_put(m, "{\"type\":\"object\",\"properties\":{");
    for (size_t i = 0; i < n; i++) {
        hostile_put(m, "%s\"property_%zu\":{\"type\":\"%s\",\"description\":\"what it is\"}",
                    i > 0 ? "," : "", i, i % 2 ? "string" : "integer");
    }
    hostile_put(m, "},\"required\":[\"property_0\"],\"additionalProperties\":false}");
}

const hostile_shape hostile_schema_shapes[] = {{"ordinary", make_ordinary, 10},
                                               {"ordinary_wide", make_ordinary_wide, 5},
                                               {"names", make_names, 15},
                                               {"joins", make_joins, 15},
                                               {"products", make_products, 10},
                                               {"references", make_references, 20},
                                               {"deep", make_deep, 5},
                                               {"counts", make_counts, 10},
                                               {"values", make_values, 5},
                                               {"numbers", make_numbers, 5},
                                               {"patterns", make_patterns, 10},
                                               {"pointers", make_pointers, 5},
                                               {NULL, NULL, 0}};

void hostile_schema(hostile_maker *m, size_t n_bytes)
{
    const size_t n = sizeof hostile_schema_shapes / sizeof hostile_schema_shapes[0] - 1;
    skv_buf schema, *to = m->to;
    size_t room = m->room;
    skv_buf_init(&schema, 2 * HOSTILE_TEXT_MAX);
    m->to = &schema;
    m->room = n_bytes;
    hostile_schema_shapes[hostile_below(m, n)].make(m);
    m->to = to;
    m->room = room;
    (void)skv_buf_append(to, schema.data, schema.size);
    skv_buf_release(&schema);
}
