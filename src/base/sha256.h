/* SHA-256 (FIPS 180-4), by nettle: where a hash must not tell what it was made of. */
#ifndef SKV_BASE_SHA256_H
#define SKV_BASE_SHA256_H

#include <nettle/sha2.h>
#include <stddef.h>
#include <stdint.h>

enum { SKV_SHA256_BYTES = SHA256_DIGEST_SIZE };

typedef struct sha256_ctx skv_sha256;

static inline void skv_sha256_init(skv_sha256 *sha)
{
    sha256_init(sha);
}

static inline void skv_sha256_add(skv_sha256 *sha, const void *data, size_t n)
{
    sha256_update(sha, n, data);
}

static inline void skv_sha256_end(skv_sha256 *sha, uint8_t out[SKV_SHA256_BYTES])
{
    sha256_digest(sha, SKV_SHA256_BYTES, out);
}

#endif
