/* The limits of control groups, and the memory nodes, from Linux's files: see system.h. Missing
 * files mean no limit. */
#include "base/system.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

enum { PATH_BYTES = 4096, LINE_BYTES = 8192 };

/* Returns the limit of one control group, with its files in `folder`; SIZE_MAX: no limit. */
typedef size_t group_limit_fn(const char *folder);

/* The next line that fits, without its end; longer ones are skipped. */
static bool read_line(FILE *file, char line[LINE_BYTES])
{
    while (fgets(line, LINE_BYTES, file)) {
        char *end = strchr(line, '\n');
        if (end || feof(file)) {
            if (end) *end = 0;
            return true;
        }
        int c;
        while ((c = fgetc(file)) != EOF && c != '\n') continue;
    }
    return false;
}

/* Cuts the text up to `separator` off the front of *rest; NULL when nothing is left. */
static char *cut(char **rest, char separator)
{
    char *field = *rest;
    if (!field) return NULL;
    char *end = strchr(field, separator);
    if (end) *end = 0;
    *rest = end ? end + 1 : NULL;
    return field;
}

/* Whether a list separated by commas has this word. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, word, n) == 0 && (at[n] == 0 || at[n] == ',')) return true;
    }
    return false;
}

/* Resolves \ooo, which is how mountinfo writes spaces and the like. */
static void unescape(char *path)
{
    char *out = path;
    for (const char *at = path; *at; out++) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' &&
                     at[2] <= '7' && at[3] >= '0' && at[3] <= '7';
        *out = octal ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + at[3] - '0') : *at;
        at += octal ? 4 : 1;
    }
    *out = 0;
}

/* The process's group in version 2, or in version 1's hierarchy with the controller "cpu":
 * lines are ID:CONTROLLERS:PATH, and version 2 has ID 0 and no controllers. */
static bool find_group(const char *membership, bool is_v2, char group[PATH_BYTES])
{
    char line[LINE_BYTES];
    FILE *file = fopen(membership, "r");
    if (!file) return false;
    bool found = false;
    while (!found && read_line(file, line)) {
        char *rest = line;
        const char *id = cut(&rest, ':'), *controllers = cut(&rest, ':');
        if (!rest || rest[0] != '/' || strlen(rest) >= PATH_BYTES) continue;
        found = is_v2 ? strcmp(id, "0") == 0 && !*controllers : has_word(controllers, "cpu");
        if (found) memcpy(group, rest, strlen(rest) + 1);
    }
    (void)fclose(file);
    return found;
}

/* The first number of a file; false for another text, as "max", and for negative numbers. */
static bool parse_number(const char *text, unsigned long long *value, const char **end)
{
    if (*text < '0' || *text > '9') return false;
    char *after;
    *value = strtoull(text, &after, 10);
    *end = after;
    return *after == 0 || *after == ' ' || *after == '\n';
}

static bool read_text(const char *folder, const char *name, char text[64])
{
    char path[2 * PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool read = fgets(text, 64, file);
    (void)fclose(file);
    return read;
}

/* "QUOTA PERIOD" or "max PERIOD", in microseconds. */
static size_t processors_v2(const char *folder)
{
    char text[64];
    unsigned long long quota, period;
    const char *end;
    if (!read_text(folder, "cpu.max", text) || !parse_number(text, &quota, &end)) return SIZE_MAX;
    if (*end != ' ' || !parse_number(end + 1, &period, &end)) return SIZE_MAX;
    return quota && period ? skv_ceil_div(quota, period) : SIZE_MAX;
}

/* The first number of a file; SIZE_MAX: there is none. */
static size_t read_number(const char *folder, const char *name)
{
    char text[64];
    unsigned long long number;
    const char *end;
    bool found = read_text(folder, name, text) && parse_number(text, &number, &end);
    return found ? number : SIZE_MAX;
}

static size_t processors_v1(const char *folder)
{
    size_t quota = read_number(folder, "cpu.cfs_quota_us");
    size_t period = read_number(folder, "cpu.cfs_period_us");
    if (quota == SIZE_MAX || period == SIZE_MAX || !quota || !period) return SIZE_MAX;
    return skv_ceil_div(quota, period);
}

static size_t memory_left(const char *folder)
{
    size_t limit = read_number(folder, "memory.max");
    size_t used = read_number(folder, "memory.current");
    if (limit == SIZE_MAX || used == SIZE_MAX) return SIZE_MAX;
    return limit > used ? limit - used : 0;
}

/* The smallest limit from the group `below` up to the mount point itself. */
static size_t limit_of_path(const char *root, const char *mount_point, const char *below,
                            group_limit_fn *limit_of)
{
    char folder[2 * PATH_BYTES];
    int n_mount = snprintf(folder, PATH_BYTES, "%s%s", root, mount_point);
    if (n_mount < 0 || n_mount >= PATH_BYTES) return SIZE_MAX;
    (void)snprintf(folder + n_mount, PATH_BYTES, "%s", below);
    size_t limit = limit_of(folder);
    for (char *end; (end = strrchr(folder + n_mount, '/'));) {
        *end = 0;
        limit = skv_min_size(limit, limit_of(folder));
    }
    return limit;
}

/* The part of the group's path that lies below a mount of `mount_root`; NULL: it is elsewhere. */
static const char *path_below(const char *group, const char *mount_root)
{
    size_t n = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    bool is_below = strncmp(group, mount_root, n) == 0 && (group[n] == 0 || group[n] == '/');
    return is_below && !strstr(group, "/..") ? group + n : NULL;
}

/* Of a line "ID PARENT DEVICE ROOT POINT OPTIONS [OPTIONAL ...] - TYPE SOURCE SUPER-OPTIONS" root
 * and point, if it is a hierarchy of control groups that can limit processors. */
static bool parse_mount(char *line, bool is_v2, char **mount_root, char **mount_point)
{
    char *fs = strstr(line, " - ");
    if (!fs) return false;
    *fs = 0;
    fs += strlen(" - ");
    const char *type = cut(&fs, ' '), *source = cut(&fs, ' ');
    if (!source || strcmp(type, is_v2 ? "cgroup2" : "cgroup") != 0) return false;
    if (!is_v2 && (!fs || !has_word(fs, "cpu"))) return false;
    for (int i = 0; i < 3; i++) (void)cut(&line, ' ');
    *mount_root = cut(&line, ' ');
    *mount_point = cut(&line, ' ');
    if (!*mount_point) return false;
    unescape(*mount_root);
    unescape(*mount_point);
    return true;
}

/* A container may see its group mounted under a name that its path does not have. Then the mount
 * point is the group. */
static size_t limit_of_version(const char *root, bool is_v2)
{
    char group[PATH_BYTES], line[LINE_BYTES], *mount_root, *mount_point;
    (void)snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    if (!find_group(line, is_v2, group)) return SIZE_MAX;
    (void)snprintf(line, sizeof line, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(line, "r");
    if (!file) return SIZE_MAX;
    size_t limit = SIZE_MAX, limit_elsewhere = SIZE_MAX;
    bool is_mounted = false;
    while (read_line(file, line)) {
        if (!parse_mount(line, is_v2, &mount_root, &mount_point)) continue;
        const char *below = path_below(group, mount_root);
        size_t *of_mount = below ? &limit : &limit_elsewhere;
        is_mounted = is_mounted || below;
        size_t on_path = limit_of_path(root, mount_point, below ? below : "",
                                       is_v2 ? processors_v2 : processors_v1);
        *of_mount = skv_min_size(*of_mount, on_path);
    }
    (void)fclose(file);
    return is_mounted ? limit : limit_elsewhere;
}

size_t skv_processors_of_groups(const char *root)
{
    return skv_min_size(limit_of_version(root, true), limit_of_version(root, false));
}

/* The numbers that a list like "0-1,4" names; returns how many, 0: it is none. */
static size_t parse_list(const char *list, skv_processor_set *out)
{
    size_t n = 0;
    *out = (skv_processor_set){0};
    for (const char *at = list; *at && *at != '\n';) {
        char *end;
        if (*at < '0' || *at > '9') return 0;
        const unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (*end == '-') {
            if (end[1] < '0' || end[1] > '9') return 0;
            last = strtoul(end + 1, &end, 10);
        }
        if (last < first || last >= SKV_PROCESSORS_MAX) return 0;
        for (size_t i = first; i <= last; i++) out->bits[i / 64] |= UINT64_C(1) << i % 64;
        n += last - first + 1;
        at = *end == ',' ? end + 1 : end;
        if (*end && *end != ',' && *end != '\n') return 0;
    }
    return n;
}

/* The nodes that have memory; returns how many, 0: nothing tells. */
static size_t read_nodes(const char *root, skv_processor_set *out)
{
    char folder[PATH_BYTES], text[64];
    (void)snprintf(folder, sizeof folder, "%s/sys/devices/system/node", root);
    const bool found = read_text(folder, "has_memory", text) || read_text(folder, "online", text);
    return found ? parse_list(text, out) : 0;
}

size_t skv_memory_nodes(const char *root)
{
    skv_processor_set nodes;
    return skv_max_size(1, read_nodes(root, &nodes));
}

/* The processors of a node that are allowed; returns how many. */
static size_t read_processors(const char *root, size_t node, const skv_processor_set *allowed,
                              skv_processor_set *out)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    size_t n = 0;
    *out = (skv_processor_set){0};
    (void)snprintf(path, sizeof path, "%s/sys/devices/system/node/node%zu/cpulist", root, node);
    FILE *file = fopen(path, "r");
    const bool found = file && read_line(file, line) && parse_list(line, out) > 0;
    if (file) (void)fclose(file);
    for (size_t i = 0; i < SKV_PROCESSORS_MAX / 64; i++) {
        out->bits[i] &= found ? allowed->bits[i] : 0;
        n += (size_t)__builtin_popcountll(out->bits[i]);
    }
    return n;
}

void skv_nodes_find(const char *root, const skv_processor_set *allowed, skv_nodes *out)
{
    skv_processor_set nodes;
    size_t n = 0;
    if (read_nodes(root, &nodes) < 2) nodes = (skv_processor_set){0};
    for (size_t i = 0; i < SKV_PROCESSORS_MAX; i++) {
        skv_processor_set processors;
        if ((nodes.bits[i / 64] >> i % 64 & 1) == 0) continue;
        const size_t n_processors = read_processors(root, i, allowed, &processors);
        if (n_processors == 0) continue;
        if (n < SKV_NODES_MAX) {
            out->number[n] = (unsigned)i;
            out->processors[n] = processors;
            out->n_processors[n] = n_processors;
        }
        n++;
    }
    out->n = n > 0 && n <= SKV_NODES_MAX ? n : 1;
}

size_t skv_memory_of_groups(const char *membership, const char *root)
{
    char group[PATH_BYTES];
    bool found = find_group(membership, true, group);
    return limit_of_path(root, "", found ? group : "", memory_left);
}
