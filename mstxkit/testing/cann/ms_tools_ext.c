/* libms_tools_ext.so: the mstx calls that a program makes.
 *
 * As in CANN, the first call looks for a tool, in MSTX_INJECTION_PATH or else among what is visible to the whole
 * process, and what it finds, or does not find, holds for the life of the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef void (*function)(void);
typedef int (*injection)(int (*get)(int, function ***, unsigned *));

static void (*mark)(const char *, void *);
static uint64_t (*range_start)(const char *, void *);
static void (*range_end)(uint64_t);
static void *(*domain_create)(const char *);
static void (*domain_destroy)(void *);
static void (*domain_mark)(void *, const char *, void *);
static uint64_t (*domain_range_start)(void *, const char *, void *);
static void (*domain_range_end)(void *, uint64_t);

static function *plain[] = {0, (function *)&mark, (function *)&range_start, (function *)&range_end};
static function *domains[] = {0, (function *)&domain_create, (function *)&domain_destroy, (function *)&domain_mark,
                              (function *)&domain_range_start, (function *)&domain_range_end};

static int table_of(int module, function ***table, unsigned *size) {
  *table = module == 1 ? plain : domains;
  *size = module == 1 ? sizeof plain / sizeof *plain : sizeof domains / sizeof *domains;
  return module != 1 && module != 2;
}

static void find_tool(void) {
  const char *path = getenv("MSTX_INJECTION_PATH");
  void *handle = path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : RTLD_DEFAULT;
  injection inject = (injection)dlsym(handle, "InitInjectionMstx");
  if (inject) inject(table_of);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
#define LOOK() pthread_once(&once, find_tool)

void mstxMarkA(const char *message, void *stream) {
  LOOK();
  if (mark) mark(message, stream);
}
uint64_t mstxRangeStartA(const char *message, void *stream) {
  return LOOK(), range_start ? range_start(message, stream) : 0;
}
void mstxRangeEnd(uint64_t id) {
  LOOK();
  if (range_end) range_end(id);
}
void *mstxDomainCreateA(const char *name) { return LOOK(), domain_create ? domain_create(name) : 0; }
void mstxDomainDestroy(void *domain) {
  LOOK();
  if (domain_destroy) domain_destroy(domain);
}
void mstxDomainMarkA(void *domain, const char *message, void *stream) {
  LOOK();
  if (domain_mark) domain_mark(domain, message, stream);
}
uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream) {
  return LOOK(), domain_range_start ? domain_range_start(domain, message, stream) : 0;
}
void mstxDomainRangeEnd(void *domain, uint64_t id) {
  LOOK();
  if (domain_range_end) domain_range_end(domain, id);
}
void mstxGetToolId(uint64_t *id) { *id = 0; }
