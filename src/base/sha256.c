/* SHA-256: see sha256.h. Names are those of the standard. */
#include "base/sha256.h"

#include <string.h>

#include "base/size.h"

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void schedule(const uint8_t *block, uint32_t w[64])
{
    for (size_t t = 0; t < 16; t++) {
        const uint8_t *b = block + 4 * t;
        w[t] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (size_t t = 16; t < 64; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];
        uint32_t s0 = rotr(a, 7) ^ rotr(a, 18) ^ a >> 3;
        uint32_t s1 = rotr(b, 17) ^ rotr(b, 19) ^ b >> 10;
        w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
}

static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];
    schedule(block, w);
    memcpy(s, state, sizeof s);
    for (size_t t = 0; t < 64; t++) {
        uint32_t a = s[0], e = s[4];
        uint32_t sum1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
        uint32_t choice = (e & s[5]) ^ (~e & s[6]);
        uint32_t t1 = s[7] + sum1 + choice + K[t] + w[t];
        uint32_t sum0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
        uint32_t majority = (a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof *s);
        s[0] = t1 + sum0 + majority;
        s[4] += t1;
    }
    for (size_t i = 0; i < 8; i++) state[i] += s[i];
}

void skv_sha256_init(skv_sha256 *sha)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *sha = (skv_sha256){.n_bytes = 0};
    memcpy(sha->state, first, sizeof first);
}

void skv_sha256_add(skv_sha256 *sha, const void *data, size_t n)
{
    const uint8_t *at = data;
    while (n > 0) {
        size_t held = (size_t)(sha->n_bytes % sizeof sha->block);
        size_t take = skv_min_size(n, sizeof sha->block - held);
        memcpy(sha->block + held, at, take);
        sha->n_bytes += take;
        at += take;
        n -= take;
        if (held + take == sizeof sha->block) compress(sha->state, sha->block);
    }
}

void skv_sha256_end(skv_sha256 *sha, uint8_t out[SKV_SHA256_BYTES])
{
    static const uint8_t one = 0x80, zero = 0;
    uint64_t n_bits = sha->n_bytes * 8;
    skv_sha256_add(sha, &one, 1);
    while (sha->n_bytes % sizeof sha->block != 56) skv_sha256_add(sha, &zero, 1);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(n_bits >> (56 - 8 * i));
    skv_sha256_add(sha, length, sizeof length);
    for (size_t i = 0; i < 8; i++) {
        for (size_t j = 0; j < 4; j++) out[4 * i + j] = (uint8_t)(sha->state[i] >> (24 - 8 * j));
    }
}
