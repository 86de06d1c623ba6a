/* libprofapi.so: the tool behind mstx. As in CANN, libms_tools_ext finds it only once it is visible to the whole
 * process. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

typedef void (*function)(void);
typedef int (*get_table)(int module, function ***table, unsigned *size);

static _Atomic uint64_t last_id;

static uint64_t begin(const char *call) {
  uint64_t id = standin_takes_mstx() ? atomic_fetch_add(&last_id, 1) + 1 : 0;
  return (uint64_t)standin_answer(call, (long)id);
}

static void mark(const char *message, void *stream) {
  standin_log("mstxMarkA", ", \"message\": \"%s\", \"stream\": %d", standin_escape(message), stream != 0);
}
static uint64_t range_start(const char *message, void *stream) {
  uint64_t id = begin("mstxRangeStartA");
  standin_log("mstxRangeStartA", ", \"message\": \"%s\", \"stream\": %d, \"id\": %llu", standin_escape(message),
              stream != 0, (unsigned long long)id);
  return id;
}
static void range_end(uint64_t id) { standin_log("mstxRangeEnd", ", \"id\": %llu", (unsigned long long)id); }

static void *domain_create(const char *name) {
  standin_log("mstxDomainCreateA", ", \"domain\": \"%s\"", standin_escape(name));
  return standin_answer("mstxDomainCreateA", 0) ? 0 : strdup(name ? name : "");
}
static void domain_destroy(void *domain) { free(domain); }
static void domain_mark(void *domain, const char *message, void *stream) {
  standin_log("mstxDomainMarkA", ", \"domain\": \"%s\", \"message\": \"%s\", \"stream\": %d", standin_escape(domain),
              standin_escape(message), stream != 0);
}
static uint64_t domain_range_start(void *domain, const char *message, void *stream) {
  uint64_t id = begin("mstxDomainRangeStartA");
  standin_log("mstxDomainRangeStartA", ", \"domain\": \"%s\", \"message\": \"%s\", \"stream\": %d, \"id\": %llu",
              standin_escape(domain), standin_escape(message), stream != 0, (unsigned long long)id);
  return id;
}
static void domain_range_end(void *domain, uint64_t id) {
  standin_log("mstxDomainRangeEnd", ", \"domain\": \"%s\", \"id\": %llu", standin_escape(domain),
              (unsigned long long)id);
}

static void fill(get_table get, int module, const function *functions, unsigned n) {
  function **table;
  unsigned size;
  if (get(module, &table, &size)) return;
  for (unsigned i = 1; i < size && i < n; ++i) *table[i] = functions[i];
}

int InitInjectionMstx(get_table get) {
  const function plain[] = {0, (function)mark, (function)range_start, (function)range_end};
  const function domains[] = {0, (function)domain_create, (function)domain_destroy, (function)domain_mark,
                              (function)domain_range_start, (function)domain_range_end};
  standin_log("InitInjectionMstx", "%s", "");
  if (standin_answer("InitInjectionMstx", 0)) return 1;
  fill(get, 1, plain, sizeof plain / sizeof *plain);
  fill(get, 2, domains, sizeof domains / sizeof *domains);
  return 0;
}
