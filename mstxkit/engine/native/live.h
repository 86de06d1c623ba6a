#pragma once
#include "types.h"

static inline uint64_t *u64_at(char *base, uint64_t at);
static inline uint32_t *u32_at(char *base, uint64_t at);
static inline void publish(uint64_t *at, uint64_t value);
static inline uint64_t bank_room(void);
static int put_text(int kind, uint32_t id, const void *head, uint32_t head_bytes, const void *a, uint32_t a_bytes,
                    const void *b, uint32_t b_bytes, uint64_t spare);
static inline char *bank_at(uint32_t index);
static void wake_sealer(void);
static void wake_sealer_soon(void);
static inline void store_record(uint64_t index, uint64_t w0, uint64_t w1, uint64_t w2);
static inline void publish_count(uint64_t count);
static inline uint64_t since_origin(uint64_t end);
static inline uint64_t duration_bits(uint64_t ticks);
static inline int32_t open_slot(uint64_t start, uint64_t w1, uint64_t w2, Range *range);
static inline void close_slot(int32_t slot);
