/*
 * PEFT's folders: adapter_config.json has the scale, adapter_model.safetensors has the tensors
 * "base_model.model.NAME.lora_A.weight" [r, K] and "....lora_B.weight" [N, r].
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "format/json_doc.h"
#include "format/lora.h"
#include "format/safetensors.h"

enum { CONFIG_BYTES_MAX = 1 << 20, RANK_MAX = 1 << 16 };

/* Keys that change the result beyond A and B: each must be absent or have its expected value. */
static const struct {
    const char *key, *expected;
    bool must_be_none; /* else: false */
} refused[] = {
    {"use_dora", "false (DoRA is not supported)", false},
    {"fan_in_fan_out", "false", false},
    {"lora_bias", "false", false},
    {"modules_to_save", "none", true},
    {"layer_replication", "none", true},
    {"trainable_token_indices", "none", true},
    {"target_parameters", "none", true},
    {"alora_invocation_tokens", "none", true},
    {"megatron_config", "none", true},
};

static bool is_empty(const json_t *value)
{
    return !value || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* Ways of starting that change the weights of the model too: its files are not the adapter's base
 * then. */
static void refuse_start(skv_json_reader *r)
{
    static const char *const starts[] = {"pissa", "olora", "corda", "loftq"};
    const json_t *start = skv_json_get(r, "init_lora_weights");
    const char *text = json_is_string(start) ? json_string_value(start) : "";
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        if (strncmp(text, starts[i], strlen(starts[i])) != 0) continue;
        skv_json_refuse(r, "init_lora_weights", start,
                        "one that leaves the model as it is (PEFT can convert the adapter)");
    }
}

static void refuse_extras(skv_json_reader *r)
{
    const char *type = skv_json_text(r, "peft_type", "LORA");
    if (strcmp(type, "LORA") != 0) {
        skv_json_refuse(r, "peft_type", skv_json_get(r, "peft_type"), "\"LORA\"");
    }
    const char *bias = skv_json_text(r, "bias", "none");
    if (strcmp(bias, "none") != 0) {
        skv_json_refuse(r, "bias", skv_json_get(r, "bias"), "\"none\"");
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const json_t *value = skv_json_get(r, refused[i].key);
        if (!is_empty(value)) skv_json_refuse(r, refused[i].key, value, refused[i].expected);
    }
    refuse_start(r);
}

/* Whether a key of a pattern names a module: the end of its name from a dot on. */
static bool names(const char *key, const char *module)
{
    const bool whole = *key == '^';
    key += whole;
    const size_t n = strlen(module), n_key = strlen(key);
    if (n_key > n || strcmp(module + n - n_key, key) != 0) return false;
    return n == n_key || (!whole && module[n - n_key - 1] == '.');
}

/* alpha_pattern's number for a module, or the adapter's. PEFT takes the first key that matches. */
static double alpha_of(skv_json_reader *r, const json_t *pattern, const char *module,
                       double fallback)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)pattern, key, value)
    {
        if (strpbrk(key, "\\*+?()[]{}|$")) {
            skv_json_refuse(r, "alpha_pattern", value, "names of modules, not expressions");
        } else if (names(key, module)) {
            return skv_json_double_of(r, value, "alpha_pattern");
        }
    }
    return fallback;
}

/* The tensors determine the ranks; a configuration with another rank belongs to another file. */
static void set_scales(skv_lora *lora, skv_json_reader *r)
{
    const size_t rank = skv_json_size(r, "r", 8, RANK_MAX);
    const double alpha = skv_json_double(r, "lora_alpha", 8);
    const bool rooted = skv_json_bool(r, "use_rslora", false);
    const bool one_rank = is_empty(skv_json_get(r, "rank_pattern"));
    const json_t *pattern = skv_json_get(r, "alpha_pattern");
    for (size_t i = 0; i < lora->n_pairs && r->status == SKV_OK; i++) {
        skv_lora_pair *pair = &lora->pairs[i];
        const double n = pair->a.n_dims == 2 ? (double)pair->a.dims[0] : 1;
        const double own = alpha_of(r, pattern, pair->name, alpha);
        pair->scale = (float)(own / (rooted ? sqrt(n) : n));
        if (one_rank && n != (double)rank) {
            r->status = skv_fail(r->err, SKV_FORMAT, "%s: %s: rank %.0f, but r is %zu", lora->path,
                                 pair->name, n, rank);
        }
    }
}

/* Every module of a list has a tensor: a file that lost some of them is not used silently. */
static void check_modules(const skv_lora *lora, skv_json_reader *r)
{
    const json_t *modules = skv_json_get(r, "target_modules");
    for (size_t m = 0; m < json_array_size(modules); m++) {
        const json_t *module = json_array_get(modules, m);
        const char *text = json_string_value(module);
        size_t i = 0;
        while (text && i < lora->n_pairs && !names(text, lora->pairs[i].name)) i++;
        if (i == lora->n_pairs || !text) {
            skv_json_refuse(r, "target_modules", module,
                            "names of modules that adapter_model.safetensors has tensors of");
        }
    }
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    const size_t n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

static skv_status put_tensor(skv_lora *lora, const skv_tensor *t, skv_error *err)
{
    static const char prefix[] = "base_model.model.", a[] = ".lora_A.weight",
                      b[] = ".lora_B.weight";
    const size_t n_prefix = sizeof prefix - 1, n = strlen(t->name);
    const bool is_a = ends_with(t->name, n, a), is_b = ends_with(t->name, n, b);
    SKV_REQUIRE(strncmp(t->name, prefix, n_prefix) == 0 && (is_a || is_b) &&
                    n > n_prefix + sizeof a - 1,
                err, SKV_UNSUPPORTED, "%s: %s: expected \"%sMODULE%s\" or \"%s\"", lora->path,
                t->name, prefix, a, b + 1);
    return skv_lora_put(lora, t->name + n_prefix, n - n_prefix - (sizeof a - 1), is_b, t, err);
}

static skv_status read_tensors(skv_lora *lora, skv_error *err)
{
    char *path = skv_path_join(lora->path, "adapter_model.safetensors");
    const skv_status status = path ? skv_safetensors_open(path, &lora->tensors, err)
                                   : skv_fail(err, SKV_MEMORY, "%s: no memory", lora->path);
    skv_free(path);
    SKV_TRY(status);
    const size_t n = skv_safetensors_count(lora->tensors);
    SKV_TRY(skv_lora_take(lora, n, err));
    for (size_t i = 0; i < n; i++) {
        SKV_TRY(put_tensor(lora, skv_safetensors_at(lora->tensors, i), err));
    }
    return SKV_OK;
}

static skv_status read_config(skv_lora *lora, const char *path, const char *text, size_t n,
                              skv_error *err)
{
    json_t *json = NULL;
    SKV_TRY(skv_json_load(text, n, CONFIG_BYTES_MAX, path, &json, err));
    skv_json_reader r = {.object = json, .name = path, .err = err};
    if (!json_is_object(json)) {
        r.status = skv_fail(err, SKV_FORMAT, "%s: not a JSON object", path);
    }
    if (r.status == SKV_OK) refuse_extras(&r);
    if (r.status == SKV_OK) r.status = read_tensors(lora, err);
    if (r.status == SKV_OK) set_scales(lora, &r);
    if (r.status == SKV_OK) check_modules(lora, &r);
    json_decref(json);
    return r.status;
}

skv_status skv_lora_read_peft(skv_lora *lora, skv_error *err)
{
    char *path = skv_path_join(lora->path, "adapter_config.json"), *text = NULL;
    size_t n = 0;
    skv_status status = path ? skv_file_read(path, CONFIG_BYTES_MAX, &text, &n, err)
                             : skv_fail(err, SKV_MEMORY, "%s: no memory", lora->path);
    if (status == SKV_OK) status = read_config(lora, path, text, n, err);
    skv_free(text);
    skv_free(path);
    return status;
}
