/* SHA-256 (FIPS 180-4), through nettle, for hashes that must not reveal their input. HMAC (RFC
 * 2104) with it, for checksums that only the holder of the key can compute. */
#ifndef SKV_BASE_SHA256_H
#define SKV_BASE_SHA256_H

#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stddef.h>
#include <stdint.h>

enum { SKV_SHA256_BYTES = SHA256_DIGEST_SIZE };

typedef struct sha256_ctx skv_sha256;
typedef struct hmac_sha256_ctx skv_hmac;

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

static inline void skv_hmac_init(skv_hmac *hmac, const void *key, size_t n)
{
    hmac_sha256_set_key(hmac, n, key);
}

static inline void skv_hmac_add(skv_hmac *hmac, const void *data, size_t n)
{
    hmac_sha256_update(hmac, n, data);
}

static inline void skv_hmac_end(skv_hmac *hmac, uint8_t out[SKV_SHA256_BYTES])
{
    hmac_sha256_digest(hmac, SKV_SHA256_BYTES, out);
}

#endif
