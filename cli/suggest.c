/* Near words: see suggest.h. */
#include "suggest.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WORD_MAX = 40, STEM_MIN = 6 /* letters that two words share from their beginning */ };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to add, leave out, change or swap with their neighbours (optimal string alignment). */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][WORD_MAX + 1]; /* of the last two letters of a and of this one */
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n_b; j++) last[j] = before[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[n_b];
}

cli_suggestion cli_suggest(const char *given, size_t n)
{
    return (cli_suggestion){.given = given, .n = n};
}

void cli_suggest_try(cli_suggestion *s, const char *word)
{
    const size_t n = strlen(word);
    if (s->n > WORD_MAX || n > WORD_MAX) return;
    /* "--temperature" means "--temp". */
    const size_t shorter = least(n, s->n);
    const bool begins = shorter >= STEM_MIN && memcmp(word, s->given, shorter) == 0;
    const size_t d = begins ? 1 : distance(s->given, s->n, word, n);
    if (d > 1 + s->n / 6 || (s->best && d >= s->distance)) return;
    s->best = word;
    s->distance = d;
}

/* ---- folders ---- */

static bool holds(const char *folder, const char *name)
{
    char path[CLI_HUB_PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && n < CLI_HUB_PATH_MAX && access(path, F_OK) == 0;
}

/* The first by name of the folders in it that hold a model. */
static bool find_model_in(const char *folder, char found[CLI_HUB_PATH_MAX])
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    found[0] = 0;
    while (dir && (entry = readdir(dir))) {
        char path[CLI_HUB_PATH_MAX];
        if (entry->d_name[0] == '.') continue;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (n <= 0 || n >= CLI_HUB_PATH_MAX || !holds(path, "config.json")) continue;
        if (found[0] == 0 || strcmp(path, found) < 0) memcpy(found, path, (size_t)n + 1);
    }
    if (dir) (void)closedir(dir);
    return found[0] != 0;
}

int cli_suggest_folder(const char **path, char room[CLI_HUB_PATH_MAX])
{
    char found[CLI_HUB_PATH_MAX];
    if (holds(*path, "config.json")) return CLI_DONE;
    if (holds(*path, "checkpoint") && holds(*path, "log.jsonl")) {
        return cli_fail("%s: an unfinished training run: repeat its command with --resume", *path);
    }
    const size_t n_gguf = cli_hub_gguf_in(*path, found);
    if (n_gguf > 1) {
        return cli_fail("%s: %zu GGUF files: name one of them, such as %s", *path, n_gguf, found);
    }
    if (n_gguf == 1) {
        memcpy(room, found, sizeof found);
        cli_warn("%s: opening %s", *path, found);
        *path = room;
        return CLI_DONE;
    }
    if (!find_model_in(*path, found)) return CLI_DONE;
    return cli_fail("%s: no config.json: a folder of models? There is %s", *path, found);
}
