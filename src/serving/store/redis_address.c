/* The instances of a store, and the values that are read from files: see redis_impl.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis_impl.h"

/* Each step can be undone, so no two numbers meet. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t hash_text(const char *text, uint64_t hash)
{
    for (; *text; text++) hash = mix(hash ^ (unsigned char)*text);
    return mix(hash);
}

uint64_t redis_rank(const redis_address *address, const uint8_t *name)
{
    uint64_t bits; /* a name is a hash already */
    memcpy(&bits, name, sizeof bits);
    return mix(address->hash ^ bits);
}

/* "HOST:PORT", "[IPv6]:PORT": [n]. */
static skv_status parse_one(const char *text, size_t n, redis_address *out, skv_error *err)
{
    const char *end = text + n, *colon = end;
    while (colon > text && colon[-1] != ':') colon--;
    SKV_REQUIRE(colon > text && colon < end, err, SKV_ARGUMENT,
                "cache-store: %.*s: expected HOST:PORT", (int)n, text);
    const char *host = text;
    size_t n_host = (size_t)(colon - 1 - text), n_port = (size_t)(end - colon);
    if (n_host > 2 && host[0] == '[' && host[n_host - 1] == ']') {
        host++;
        n_host -= 2;
    }
    SKV_REQUIRE(!memchr(text, '@', n), err, SKV_ARGUMENT,
                "cache-store: user and password belong into --cache-store-auth FILE");
    SKV_REQUIRE(n_host > 0 && n_host < REDIS_HOST_BYTES && !memchr(host, '/', n_host), err,
                SKV_ARGUMENT, "cache-store: %.*s: no host", (int)n, text);
    char *rest = NULL;
    unsigned long port = n_port < REDIS_PORT_BYTES ? strtoul(colon, &rest, 10) : 0;
    SKV_REQUIRE(rest == end && port > 0 && port < 65536 && *colon >= '0' && *colon <= '9', err,
                SKV_ARGUMENT, "cache-store: %.*s: the port is not in 1..65535", (int)n, text);
    memcpy(out->host, host, n_host);
    out->host[n_host] = 0;
    (void)snprintf(out->port, sizeof out->port, "%lu", port);
    out->hash = hash_text(out->port, hash_text(out->host, 1));
    return SKV_OK;
}

/* The scheme that a text begins with: 0: none, 1: redis, 2: rediss; moves past it. */
static int take_scheme(const char **text)
{
    static const char plain[] = "redis://", secure[] = "rediss://";
    if (strncmp(*text, plain, sizeof plain - 1) == 0) {
        *text += sizeof plain - 1;
        return 1;
    }
    if (strncmp(*text, secure, sizeof secure - 1) != 0) return 0;
    *text += sizeof secure - 1;
    return 2;
}

skv_status redis_parse(const char *text, redis_address *out, size_t *n, bool *tls, skv_error *err)
{
    int scheme = take_scheme(&text);
    *n = 0;
    SKV_REQUIRE(scheme != 0, err, SKV_ARGUMENT,
                "cache-store: %s: expected redis://HOST:PORT or rediss://HOST:PORT", text);
    for (bool more = true; more;) {
        size_t length = strcspn(text, ",");
        SKV_REQUIRE(*n < REDIS_INSTANCES_MAX, err, SKV_RANGE, "cache-store: more than %d instances",
                    REDIS_INSTANCES_MAX);
        SKV_TRY(parse_one(text, length, &out[*n], err));
        for (size_t i = 0; i < *n; i++) {
            SKV_REQUIRE(out[i].hash != out[*n].hash, err, SKV_ARGUMENT,
                        "cache-store: %.*s: named twice", (int)length, text);
        }
        *n += 1;
        text += length;
        more = *text == ',';
        text += more;
        int again = more ? take_scheme(&text) : 0;
        SKV_REQUIRE(again == 0 || again == scheme, err, SKV_ARGUMENT,
                    "cache-store: redis:// and rediss:// cannot be mixed");
    }
    *tls = scheme == 2;
    return SKV_OK;
}

/* The first line of a file, without its end. */
static skv_status read_line(const char *path, char *line, size_t room, skv_error *err)
{
    FILE *file = fopen(path, "re");
    SKV_REQUIRE(file, err, SKV_IO, "cache-store-auth: %s: cannot open", path);
    bool is_read = fgets(line, (int)room, file);
    (void)fclose(file);
    SKV_REQUIRE(is_read, err, SKV_IO, "cache-store-auth: %s: no line", path);
    size_t n = strcspn(line, "\r\n");
    SKV_REQUIRE(n > 0 && n + 1 < room, err, SKV_FORMAT,
                "cache-store-auth: %s: the first line is empty or too long", path);
    line[n] = 0;
    return SKV_OK;
}

skv_status redis_read_auth(const char *path, char *out, size_t room, size_t *n, size_t *n_replies,
                           skv_error *err)
{
    char line[REDIS_AUTH_BYTES] = "";
    int n_auth = 0;
    if (path) {
        SKV_TRY(read_line(path, line, sizeof line, err));
        size_t n_user = strcspn(line, " \t");
        const char *password = line + n_user + strspn(line + n_user, " \t");
        if (*password) {
            n_auth = snprintf(out, room, "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%.*s\r\n$%zu\r\n%s\r\n",
                              n_user, (int)n_user, line, strlen(password), password);
        } else {
            n_auth = snprintf(out, room, "*2\r\n$4\r\nAUTH\r\n$%zu\r\n%.*s\r\n", n_user,
                              (int)n_user, line);
        }
    }
    int n_ping = snprintf(out + n_auth, room - (size_t)n_auth, "*1\r\n$4\r\nPING\r\n");
    *n = (size_t)n_auth + (size_t)n_ping;
    *n_replies = path ? 2 : 1;
    return SKV_OK;
}
