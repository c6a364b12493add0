/* The words that documents are made of: fixed lists, and words made of syllables. */
#ifndef SKV_DATA_DOC_WORDS_H
#define SKV_DATA_DOC_WORDS_H

#include <stddef.h>

typedef enum skv_word_list {
    SKV_WORDS_ADJECTIVES,
    SKV_WORDS_FIRST_NAMES,
    SKV_WORDS_LAST_NAMES,
    SKV_WORDS_CITIES,
    SKV_WORDS_TRADES,   /* what companies are called after their founder's name */
    SKV_WORDS_SERVICES, /* that write logs */
    SKV_WORDS_ONSETS,   /* of syllables */
    SKV_WORDS_RIMES,
    /* From here on nouns by category: what labels are learnt for. */
    SKV_WORDS_ANIMALS,
    SKV_WORDS_FOODS,
    SKV_WORDS_TOOLS,
    SKV_WORDS_CLOTHES,
    SKV_WORDS_VEHICLES,
    SKV_WORDS_INSTRUMENTS,
    SKV_WORDS_PLANTS,
    SKV_WORDS_PLACES,
    SKV_WORDS_COUNT
} skv_word_list;

enum { SKV_WORDS_CATEGORIES = SKV_WORDS_COUNT - SKV_WORDS_ANIMALS };

size_t skv_words_size(skv_word_list list);
/** i < skv_words_size(list). */
const char *skv_word_at(skv_word_list list, size_t i);

#endif
