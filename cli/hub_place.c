/* The parts of a model's name, and the places of its files: see hub_place.h. */
#include "hub_place.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool hub_fail(hub_error *error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return false;
}

/* ---- names ---- */

size_t hub_count_word(const char *text, const char *marks)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] != 0 && strchr(marks, text[n]))) n++;
    return n;
}

/* The next n bytes of *text go to `out`; false: none, too many, or a path that leads elsewhere. */
static bool take(const char **text, size_t n, char *out, size_t room)
{
    if (n == 0 || n >= room || (*text)[0] == '.' || (*text)[0] == '/') return false;
    memcpy(out, *text, n);
    out[n] = 0;
    *text += n;
    return !strstr(out, "..");
}

bool hub_name_parse(const char *text, hub_name *out)
{
    static const char word[] = "._-";
    *out = (hub_name){.revision = "main"};
    if (!take(&text, hub_count_word(text, word), out->org, sizeof out->org) || *text != '/') {
        return false;
    }
    text++;
    if (!take(&text, hub_count_word(text, word), out->model, sizeof out->model)) return false;
    if (*text == '@') {
        text++;
        if (!take(&text, hub_count_word(text, "._-/"), out->revision, sizeof out->revision)) {
            return false;
        }
    }
    if (*text == ':') {
        text++;
        if (!take(&text, hub_count_word(text, word), out->quant, sizeof out->quant)) return false;
    }
    return *text == 0;
}

bool hub_names_quant(const char *file, const char *quant)
{
    const size_t n = strlen(quant);
    for (const char *at = file; *at; at++) {
        const bool begins = at == file || strchr("-._/", at[-1]);
        if (begins && strncasecmp(at, quant, n) == 0 && strchr("-./", at[n])) return true;
    }
    return false;
}

/* A model in several files is represented by the first. */
bool hub_is_model_file(const char *file)
{
    const size_t n = strlen(file);
    if (n < 6 || strcasecmp(file + n - 5, ".gguf") != 0) return false;
    if (strncasecmp(file, "mmproj", 6) == 0) return false; /* a vision tower */
    const char *part = strstr(file, "-of-");
    return !part || part - file < 6 || strncmp(part - 6, "-00001", 6) == 0;
}

/* ---- the cache ---- */

bool hub_join(char out[CLI_HUB_PATH_MAX], const char *folder, const char *name)
{
    const int n = snprintf(out, CLI_HUB_PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < CLI_HUB_PATH_MAX;
}

const char *hub_environment(const char *name, char out[CLI_HUB_PATH_MAX])
{
    const char *value = getenv(name), *home = getenv("HOME");
    if (!value || !*value) return NULL;
    if (value[0] != '~' || value[1] != '/' || !home) return value;
    return hub_join(out, home, value + 2) ? out : NULL;
}

const char *hub_endpoint(void)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    return endpoint && *endpoint ? endpoint : "https://huggingface.co";
}

bool hub_find_cache(char out[CLI_HUB_PATH_MAX])
{
    static const struct {
        const char *variable, *inside;
    } rows[] = {{"HF_HUB_CACHE", "."},
                {"HUGGINGFACE_HUB_CACHE", "."},
                {"HF_HOME", "hub"},
                {"XDG_CACHE_HOME", "huggingface/hub"},
                {"HOME", ".cache/huggingface/hub"}};
    char expanded[CLI_HUB_PATH_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *folder = hub_environment(rows[i].variable, expanded);
        if (!folder) continue;
        if (strcmp(rows[i].inside, ".") != 0) return hub_join(out, folder, rows[i].inside);
        return snprintf(out, CLI_HUB_PATH_MAX, "%s", folder) < CLI_HUB_PATH_MAX;
    }
    return false;
}

bool hub_find_place(const char *given, hub_place *out, hub_error *error)
{
    char folder[2 * HUB_WORD_MAX + 16];
    if (!hub_name_parse(given, &out->name)) {
        return hub_fail(error, "not org/name, org/name@revision or :type");
    }
    if (!hub_find_cache(out->cache))
        return hub_fail(error, "no Hugging Face cache: HOME is not set");
    (void)snprintf(folder, sizeof folder, "models--%s--%s", out->name.org, out->name.model);
    return hub_join(out->repository, out->cache, folder) || hub_fail(error, "the path is too long");
}
