/* Statements. Each parse_* function starts after the tag's name and ends before its "%}". */
#include <string.h>

#include "base/fail.h"
#include "base/mem.h"
#include "text/jinja/jinja_parser.h"

static bool parse_nodes(skv_jparser *p, skv_jnodes *body, const char *const *ends);

static bool at_any(const skv_jparser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (skv_jtoken_is_name(&p->token, *ends)) return true;
    return false;
}

/* From the "%}" of the opening tag to one of `ends`, which stays the current token. */
static bool parse_nodes_until(skv_jparser *p, skv_jnodes *body, const char *const *ends)
{
    (void)skv_jparse_skip_op(p, ':');
    if (p->status != SKV_OK) return false;
    if (p->token.kind != SKV_JT_BLOCK_END) return skv_jparse_unexpected(p, "end of tag");
    if (!skv_jparse_advance(p) || !parse_nodes(p, body, ends)) return false;
    if (p->token.kind == SKV_JT_END)
        return skv_jparse_fail(p, p->token.line, "unexpected end of template, looking for '%s'",
                               *ends);
    return true;
}

static bool parse_body(skv_jparser *p, skv_jnode *node, const char *const *ends)
{
    skv_jnodes body = {0};
    bool ok = parse_nodes_until(p, &body, ends);
    node->items = body.items;
    node->n_items = body.n;
    return ok;
}

/* Parses a body after `else`, and its end. */
SKV_OWN_FRAME static bool parse_otherwise(skv_jparser *p, skv_jnode *node, const char *const *ends)
{
    skv_jnodes body = {0};
    bool ok = parse_nodes_until(p, &body, ends) && skv_jparse_advance(p);
    node->more = body.items;
    node->n_more = body.n;
    return ok;
}

static const skv_jscope_info *open_scope(skv_jparser *p)
{
    skv_jscope_build *scope = skv_jscope_open(&p->scratch, p->scope);
    skv_jscope_info *info = skv_jarena_take(p->memory, 1, sizeof *info);
    if (!scope || !info) return skv_jparse_no_memory(p);
    scope->info = info;
    scope->next = p->scopes;
    p->scopes = scope;
    p->scope = scope;
    return info;
}

static void close_scope(skv_jparser *p)
{
    p->scope = p->scope->parent;
}

/* A body in a scope of its own that ends with one name, which is taken. */
static bool parse_scoped_body(skv_jparser *p, skv_jnode *node, const char *const *ends)
{
    return parse_body(p, node, ends) && skv_jparse_advance(p);
}

/* Targets of `set` and `for`. Their mention is recorded by the caller, in jinja2's order. */
static const skv_jnode *parse_target_name(skv_jparser *p, bool with_namespace)
{
    static const char *const reserved[] = {"true", "True", "false", "False", "none", "None", NULL};
    if (p->token.kind != SKV_JT_NAME || at_any(p, reserved))
        return skv_jparse_unexpected(p, "a name to assign to");
    skv_jnode *node = skv_jparse_node(p, SKV_JN_NAME, p->token.line);
    if (!node) return NULL;
    node->name = skv_jparse_keep(p, &p->token.text);
    if (!skv_jparse_symbol(p, node->name, SKV_JM_NONE, &node->sym)) return NULL;
    if (!skv_jparse_advance(p)) return NULL;
    if (with_namespace && skv_jparse_skip_op(p, '.')) {
        skv_jstr attribute;
        if (!skv_jparse_expect_any_name(p, &attribute)) return NULL;
        node->kind = SKV_JN_NSREF;
        node->value = (skv_jv){.kind = SKV_J_STRING, .as.s = skv_jparse_keep(p, &attribute)};
        if (!skv_jparse_symbol(p, node->name, SKV_JM_LOAD, &node->sym)) return NULL;
    }
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_target(skv_jparser *p, bool with_namespace);

static const skv_jnode *parse_target_item(skv_jparser *p, bool with_namespace)
{
    if (!skv_jtoken_is_op(&p->token, '(')) return parse_target_name(p, with_namespace);
    if (!skv_jparse_enter(p) || !skv_jparse_advance(p)) return NULL;
    const skv_jnode *node = parse_target(p, false);
    skv_jparse_leave(p);
    return node && skv_jparse_expect_op(p, ')') ? node : NULL;
}

SKV_OWN_FRAME static const skv_jnode *parse_target(skv_jparser *p, bool with_namespace)
{
    unsigned line = p->token.line;
    skv_jnodes items = {0};
    bool is_tuple = false;
    do {
        const skv_jtoken *t = &p->token;
        bool ends = skv_jtoken_is_op(t, '=') || skv_jtoken_is_op(t, ')') ||
                    skv_jtoken_is_name(t, "in") || t->kind == SKV_JT_BLOCK_END;
        if (is_tuple && ends) break;
        if (!skv_jparse_push(p, &items, parse_target_item(p, with_namespace))) return NULL;
    } while (skv_jparse_skip_op(p, ',') && (is_tuple = true));
    if (p->status != SKV_OK) return NULL;
    if (!is_tuple) return items.items[0];
    skv_jnode *node = skv_jparse_node(p, SKV_JN_TUPLE, line);
    if (!node) return NULL;
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}

static bool mention_target(skv_jparser *p, const skv_jnode *target, skv_jmention mention)
{
    uint32_t sym;
    if (!target) return false;
    if (target->kind == SKV_JN_NAME) return skv_jparse_symbol(p, target->name, mention, &sym);
    for (size_t i = 0; i < target->n_items; i++)
        if (!mention_target(p, target->items[i], mention)) return false;
    return true;
}

SKV_OWN_FRAME static bool push_more(skv_jparser *p, skv_jnode *node, const skv_jnode *one)
{
    skv_jnodes more = {0};
    if (!skv_jparse_push(p, &more, one)) return false;
    node->more = more.items;
    node->n_more = more.n;
    return true;
}

static const skv_jnode *parse_if(skv_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    skv_jnode *node = skv_jparse_node(p, SKV_JN_IF, p->token.line);
    if (!node || !skv_jparse_enter(p)) return NULL;
    p->scope->n_branches++;
    node->a = skv_jparse_tuple(p, false, false, NULL);
    bool ok = node->a && parse_body(p, node, ends);
    if (ok && skv_jparse_skip_name(p, "elif"))
        ok = push_more(p, node, parse_if(p));
    else if (ok && skv_jparse_skip_name(p, "else"))
        ok = parse_otherwise(p, node, ends + 2);
    else if (ok)
        ok = skv_jparse_advance(p);
    p->scope->n_branches--;
    skv_jparse_leave(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

/* The filter of a loop sees the targets in a scope of its own, and no `loop`. */
static bool parse_loop_filter(skv_jparser *p, skv_jnode *node)
{
    if (!skv_jparse_skip_name(p, "if")) return p->status == SKV_OK;
    node->other = open_scope(p);
    if (!node->other) return false;
    if (mention_target(p, node->a, SKV_JM_PARAM)) node->c = skv_jparse_expression(p, true);
    close_scope(p);
    return node->c;
}

static bool parse_loop_body(skv_jparser *p, skv_jnode *node)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    node->scope = open_scope(p);
    if (!node->scope) return false;
    p->n_loops++;
    bool ok = mention_target(p, node->a, SKV_JM_PARAM) && parse_body(p, node, ends);
    p->n_loops--;
    close_scope(p);
    if (!ok) return false;
    if (!skv_jparse_skip_name(p, "else")) return skv_jparse_advance(p);
    node->last = open_scope(p);
    if (!node->last) return false;
    ok = parse_otherwise(p, node, last);
    close_scope(p);
    return ok;
}

static bool names_loop(const skv_jnode *target)
{
    if (target->kind == SKV_JN_NAME) return skv_jstr_is(target->name, "loop");
    for (size_t i = 0; i < target->n_items; i++)
        if (names_loop(target->items[i])) return true;
    return false;
}

static const skv_jnode *parse_for(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_FOR, p->token.line);
    if (!node) return NULL;
    node->a = parse_target(p, false);
    if (!node->a) return NULL;
    if (names_loop(node->a))
        return skv_jparse_fail(p, node->line, "can't assign to the special variable 'loop'");
    if (!skv_jparse_skip_name(p, "in")) return skv_jparse_unexpected(p, "'in'");
    node->b = skv_jparse_tuple(p, false, false, "recursive");
    if (!node->b || !parse_loop_filter(p, node)) return NULL;
    if (skv_jtoken_is_name(&p->token, "recursive"))
        return skv_jparse_fail(p, node->line, "recursive loops are not supported");
    if (!skv_jparse_enter(p)) return NULL;
    bool ok = parse_loop_body(p, node);
    skv_jparse_leave(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

/* Names of a tuple of targets; namespace references in it were recorded as loads already. */
static bool mention_stores(skv_jparser *p, const skv_jnode *target)
{
    if (target->kind == SKV_JN_NSREF) return true;
    if (target->kind == SKV_JN_NAME) return mention_target(p, target, SKV_JM_STORE);
    for (size_t i = 0; i < target->n_items; i++)
        if (!mention_stores(p, target->items[i])) return false;
    return true;
}

static const skv_jnode *parse_set_block(skv_jparser *p, skv_jnode *node)
{
    static const char *const ends[] = {"endset", NULL};
    node->kind = SKV_JN_SET_BLOCK;
    if (!mention_stores(p, node->a)) return NULL;
    node->scope = open_scope(p);
    if (!node->scope || !skv_jparse_enter(p)) return NULL;
    node->b = skv_jparse_filters(p, NULL, false);
    bool ok = p->status == SKV_OK && parse_scoped_body(p, node, ends);
    skv_jparse_leave(p);
    close_scope(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

static const skv_jnode *parse_set(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_SET, p->token.line);
    if (!node) return NULL;
    node->a = parse_target(p, true);
    if (!node->a) return NULL;
    if (!skv_jparse_skip_op(p, '=')) return parse_set_block(p, node);
    node->b = skv_jparse_tuple(p, true, false, NULL);
    if (!node->b || !mention_stores(p, node->a)) return NULL;
    return skv_jparse_done(p, node);
}

/* Parameters of a macro or call block, in the scope of its body. */
SKV_OWN_FRAME static const skv_jargs *parse_parameters(skv_jparser *p)
{
    skv_jargs *args = skv_jarena_take(p->memory, 1, sizeof *args);
    if (!args) return skv_jparse_no_memory(p);
    if (!skv_jparse_expect_op(p, '(')) return NULL;
    size_t capacity = 0;
    bool defaults = false;
    while (!skv_jtoken_is_op(&p->token, ')')) {
        if (args->n_keywords && !skv_jparse_expect_op(p, ',')) return NULL;
        if (args->n_keywords == capacity) {
            capacity = capacity ? 2 * capacity : 4;
            skv_jkeyword *grown = skv_jarena_take(p->memory, capacity, sizeof *grown);
            if (!grown) return skv_jparse_no_memory(p);
            for (size_t i = 0; i < args->n_keywords; i++) grown[i] = args->keywords[i];
            args->keywords = grown;
        }
        const skv_jnode *name = parse_target_name(p, false);
        if (!name || !mention_target(p, name, SKV_JM_PARAM)) return NULL;
        skv_jkeyword *parameter = &args->keywords[args->n_keywords++];
        *parameter = (skv_jkeyword){.name = name->name, .sym = name->sym};
        if (!skv_jparse_spend(p, args->n_keywords)) return NULL;
        for (size_t i = 0; i + 1 < args->n_keywords; i++)
            if (args->keywords[i].sym == name->sym)
                return skv_jparse_fail(p, name->line, "duplicate parameter '%.*s'",
                                       (int)(name->name->size < 40 ? name->name->size : 40),
                                       name->name->data);
        if (skv_jparse_skip_op(p, '=')) {
            parameter->value = skv_jparse_expression(p, true);
            defaults = true;
        } else if (defaults) {
            return skv_jparse_fail(p, name->line, "non-default argument follows default argument");
        }
        if (p->status != SKV_OK) return NULL;
    }
    return skv_jparse_expect_op(p, ')') ? args : NULL;
}

/* Parses optional parameters and the body of macro, call and generation. */
static bool parse_function(skv_jparser *p, skv_jnode *node, const char *const *ends)
{
    unsigned n_loops = p->n_loops;
    bool ok = skv_jparse_enter(p);
    p->n_loops = 0;
    ok = ok && parse_scoped_body(p, node, ends);
    p->n_loops = n_loops;
    skv_jparse_leave(p);
    return ok;
}

static const skv_jnode *parse_macro(skv_jparser *p)
{
    static const char *const ends[] = {"endmacro", NULL};
    const skv_jnode *name = parse_target_name(p, false);
    if (!name || !mention_target(p, name, SKV_JM_STORE)) return NULL;
    skv_jnode *node = skv_jparse_node(p, SKV_JN_MACRO, name->line);
    if (!node) return NULL;
    node->name = name->name;
    node->sym = name->sym;
    node->scope = open_scope(p);
    if (!node->scope) return NULL;
    node->args = parse_parameters(p);
    bool ok = node->args && parse_function(p, node, ends);
    close_scope(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

static const skv_jnode *parse_call_block(skv_jparser *p)
{
    static const char *const ends[] = {"endcall", NULL};
    skv_jnode *node = skv_jparse_node(p, SKV_JN_CALL_BLOCK, p->token.line);
    if (!node) return NULL;
    node->scope = open_scope(p);
    if (!node->scope) return NULL;
    if (skv_jtoken_is_op(&p->token, '(') && !(node->args = parse_parameters(p))) return NULL;
    skv_jscope_build *scope = p->scope;
    p->scope = scope->parent;
    node->a = skv_jparse_expression(p, true);
    p->scope = scope;
    if (!node->a) return NULL;
    if (node->a->kind != SKV_JN_CALL) return skv_jparse_fail(p, node->line, "expected call");
    bool ok = parse_function(p, node, ends);
    close_scope(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

/* transformers' `generation` marks the assistant's text; it prints its body unchanged. */
static const skv_jnode *parse_generation(skv_jparser *p)
{
    static const char *const ends[] = {"endgeneration", NULL};
    skv_jnode *node = skv_jparse_node(p, SKV_JN_CALL_BLOCK, p->token.line);
    if (!node) return NULL;
    node->scope = open_scope(p);
    if (!node->scope) return NULL;
    bool ok = parse_function(p, node, ends);
    close_scope(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

static const skv_jnode *parse_filter_block(skv_jparser *p)
{
    static const char *const ends[] = {"endfilter", NULL};
    skv_jnode *node = skv_jparse_node(p, SKV_JN_FILTER_BLOCK, p->token.line);
    if (!node) return NULL;
    node->scope = open_scope(p);
    if (!node->scope || !skv_jparse_enter(p)) return NULL;
    node->b = skv_jparse_filters(p, NULL, true);
    bool ok = node->b && parse_scoped_body(p, node, ends);
    skv_jparse_leave(p);
    close_scope(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

/* The values belong to the outer scope, so they are all parsed before the scope opens. */
SKV_OWN_FRAME static bool parse_values(skv_jparser *p, skv_jnode *node)
{
    skv_jnodes sets = {0};
    while (p->status == SKV_OK && p->token.kind != SKV_JT_BLOCK_END) {
        if (sets.n && !skv_jparse_expect_op(p, ',')) return false;
        skv_jnode *set = skv_jparse_node(p, SKV_JN_SET, p->token.line);
        if (!set) return false;
        set->a = parse_target(p, false);
        if (!set->a || !skv_jparse_expect_op(p, '=')) return false;
        set->b = skv_jparse_expression(p, true);
        if (!skv_jparse_push(p, &sets, skv_jparse_done(p, set))) return false;
    }
    node->more = sets.items;
    node->n_more = sets.n;
    return p->status == SKV_OK;
}

static const skv_jnode *parse_with(skv_jparser *p)
{
    static const char *const ends[] = {"endwith", NULL};
    skv_jnode *node = skv_jparse_node(p, SKV_JN_WITH, p->token.line);
    if (!node || !parse_values(p, node)) return NULL;
    node->scope = open_scope(p);
    if (!node->scope || !skv_jparse_enter(p)) return NULL;
    bool ok = true;
    for (size_t i = 0; i < node->n_more; i++)
        ok = ok && mention_target(p, node->more[i]->a, SKV_JM_PARAM);
    ok = ok && parse_scoped_body(p, node, ends);
    skv_jparse_leave(p);
    close_scope(p);
    return ok ? skv_jparse_done(p, node) : NULL;
}

SKV_OWN_FRAME static const skv_jnode *parse_print(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_PRINT, p->token.line);
    skv_jnodes items = {0};
    if (!node) return NULL;
    while (p->status == SKV_OK && p->token.kind != SKV_JT_BLOCK_END) {
        if (items.n && !skv_jparse_expect_op(p, ',')) return NULL;
        if (!skv_jparse_push(p, &items, skv_jparse_expression(p, true))) return NULL;
    }
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_done(p, node);
}

static const skv_jnode *parse_jump(skv_jparser *p, skv_jnode_kind kind)
{
    const char *name = kind == SKV_JN_BREAK ? "break" : "continue";
    if (!p->n_loops) return skv_jparse_fail(p, p->token.line, "'%s' outside of a loop", name);
    return skv_jparse_done(p, skv_jparse_node(p, kind, p->token.line));
}

/* Parses the statement named by the current token. */
static const skv_jnode *parse_statement(skv_jparser *p)
{
    static const struct {
        const char *name;
        const skv_jnode *(*parse)(skv_jparser *p);
    } table[] = {{"if", parse_if},           {"for", parse_for},
                 {"set", parse_set},         {"macro", parse_macro},
                 {"call", parse_call_block}, {"filter", parse_filter_block},
                 {"with", parse_with},       {"generation", parse_generation},
                 {"print", parse_print}};
    static const char *const refused[] = {"extends", "block",      "include", "import",
                                          "from",    "autoescape", NULL};
    const skv_jtoken *t = &p->token;
    if (t->kind != SKV_JT_NAME) return skv_jparse_unexpected(p, "the name of a tag");
    if (skv_jparse_skip_name(p, "break")) return parse_jump(p, SKV_JN_BREAK);
    if (skv_jparse_skip_name(p, "continue")) return parse_jump(p, SKV_JN_CONTINUE);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (skv_jparse_skip_name(p, table[i].name)) return table[i].parse(p);
    return skv_jparse_fail(
        p, t->line, at_any(p, refused) ? "tag '%.*s' is not supported" : "unknown tag '%.*s'",
        (int)(t->text.size < 60 ? t->text.size : 60), t->text.data);
}

SKV_OWN_FRAME static const skv_jnode *parse_text(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_TEXT, p->token.line);
    if (!node) return NULL;
    node->value = (skv_jv){.kind = SKV_J_STRING, .as.s = skv_jparse_keep(p, &p->token.text)};
    return skv_jparse_advance(p) ? skv_jparse_done(p, node) : NULL;
}

SKV_OWN_FRAME static const skv_jnode *parse_output(skv_jparser *p)
{
    skv_jnode *node = skv_jparse_node(p, SKV_JN_PRINT, p->token.line);
    skv_jnodes items = {0};
    if (!node || !skv_jparse_advance(p)) return NULL;
    if (!skv_jparse_push(p, &items, skv_jparse_tuple(p, true, false, NULL))) return NULL;
    if (p->token.kind != SKV_JT_PRINT_END) return skv_jparse_unexpected(p, "'}}'");
    node->items = items.items;
    node->n_items = items.n;
    return skv_jparse_advance(p) ? skv_jparse_done(p, node) : NULL;
}

/* Nodes up to the end of the template, or to a tag with one of these names. */
static bool parse_nodes(skv_jparser *p, skv_jnodes *body, const char *const *ends)
{
    while (p->status == SKV_OK && p->token.kind != SKV_JT_END) {
        const skv_jnode *node;
        if (p->token.kind == SKV_JT_DATA) {
            node = parse_text(p);
        } else if (p->token.kind == SKV_JT_PRINT_BEGIN) {
            node = parse_output(p);
        } else {
            if (!skv_jparse_advance(p)) return false;
            if (ends && at_any(p, ends)) return true;
            node = parse_statement(p);
            if (node && p->token.kind != SKV_JT_BLOCK_END)
                return skv_jparse_unexpected(p, "end of tag");
            if (node && !skv_jparse_advance(p)) return false;
        }
        if (!skv_jparse_push(p, body, node)) return false;
    }
    return p->status == SKV_OK;
}

static bool parse_template(skv_jparser *p, skv_jinja *out)
{
    static const skv_jstr known[] = {{"loop", 4, 4, NULL},
                                     {"caller", 6, 6, NULL},
                                     {"kwargs", 6, 6, NULL},
                                     {"varargs", 7, 7, NULL}}; /* numbered like SKV_JSYM_* */
    skv_jnodes body = {0};
    uint32_t sym;
    out->scope = open_scope(p);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!skv_jparse_symbol(p, &known[i], SKV_JM_NONE, &sym)) return false;
    if (!out->scope || !skv_jparse_advance(p) || !parse_nodes(p, &body, NULL)) return false;
    out->body = body.items;
    out->n_body = body.n;
    if (p->unknown) {
        while (p->unknown->previous) p->unknown = p->unknown->previous;
        const skv_jnode *node = p->unknown->node;
        return skv_jparse_fail(
            p, node->line, "unknown %s '%.*s'", node->kind == SKV_JN_FILTER ? "filter" : "test",
            (int)(node->name->size < 60 ? node->name->size : 60), node->name->data);
    }
    for (skv_jscope_build *s = p->scopes; s; s = s->next)
        if (!skv_jscope_finish(p->memory, s)) return skv_jparse_no_memory(p);
    return true;
}

skv_status skv_jinja_parse(const char *source, size_t n, const char *name, skv_budget *budget,
                           skv_jinja *out, skv_error *err)
{
    SKV_REQUIRE(n <= SKV_JTEMPLATE_BYTES_MAX, err, SKV_RANGE,
                "%s: template of %zu bytes, at most %d", name, n, SKV_JTEMPLATE_BYTES_MAX);
    skv_jarena_init(&out->memory, budget);
    out->name = skv_strndup(name, strlen(name));
    SKV_REQUIRE(out->name, err, SKV_MEMORY, "%s: no memory", name);
    skv_jparser p = {
        .lex = {.arena = &out->memory, .name = out->name}, .memory = &out->memory, .err = err};
    SKV_TRY(skv_jlex_init(&p.lex, source, n, err));
    skv_jarena_init(&p.scratch, budget);
    (void)parse_template(&p, out);
    skv_jarena_release(&p.scratch);
    if (p.status == SKV_OK) p.status = skv_budget_check(budget, name, err);
    skv_jarena_detach(&out->memory);
    return p.status;
}

void skv_jinja_release(skv_jinja *t)
{
    skv_jarena_release(&t->memory);
    skv_free(t->name);
    t->name = NULL;
}
