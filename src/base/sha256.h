/* SHA-256 (FIPS 180-4): where a hash must not tell what it was made of. */
#ifndef SKV_BASE_SHA256_H
#define SKV_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SKV_SHA256_BYTES = 32 };

typedef struct skv_sha256 {
    uint32_t state[8];
    uint64_t n_bytes; /* so far */
    uint8_t block[64];
} skv_sha256;

void skv_sha256_init(skv_sha256 *sha);
void skv_sha256_add(skv_sha256 *sha, const void *data, size_t n);
void skv_sha256_end(skv_sha256 *sha, uint8_t out[SKV_SHA256_BYTES]);

#endif
