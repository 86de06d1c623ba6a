/* The acl runtime calls whose answer torch_npu reads before it trusts a device. Every name in symbols.txt answers 0
 * (success). */
#define _GNU_SOURCE
#include "standin.h"

#include <stdlib.h>
#include <string.h>

static int make(const char *call, void **out) {
  int code = (int)standin_answer(call, 0);
  if (!code) *out = malloc(8);
  return code;
}

const char *aclrtGetSocName(void) { return "Ascend910B2"; }
const char *aclGetRecentErrMsg(void) { return 0; }
int aclrtGetDeviceCount(uint32_t *n) { return *n = 1, (int)standin_answer("aclrtGetDeviceCount", 0); }
int aclrtGetDevice(int32_t *device) { return *device = 0, (int)standin_answer("aclrtGetDevice", 0); }
int aclrtCreateStream(void **stream) { return make("aclrtCreateStream", stream); }
int aclrtCreateStreamWithConfig(void **stream, uint32_t priority, uint32_t flag) {
  return (void)priority, (void)flag, make("aclrtCreateStreamWithConfig", stream);
}
int aclrtCreateEvent(void **event) { return make("aclrtCreateEvent", event); }
int aclrtCreateEventWithFlag(void **event, uint32_t flag) {
  return (void)flag, make("aclrtCreateEventWithFlag", event);
}
int aclrtCreateEventExWithFlag(void **event, uint32_t flag) {
  return (void)flag, make("aclrtCreateEventExWithFlag", event);
}
int aclrtMalloc(void **p, size_t n, int policy) {
  (void)policy;
  int code = (int)standin_answer("aclrtMalloc", 0);
  if (!code) *p = malloc(n);
  return code;
}
int aclrtMallocAlign32(void **p, size_t n, int policy) {
  (void)policy;
  int code = (int)standin_answer("aclrtMallocAlign32", 0);
  if (!code) *p = aligned_alloc(64, (n + 63) / 64 * 64);
  return code;
}
int aclrtFree(void *p) { return free(p), (int)standin_answer("aclrtFree", 0); }
int aclrtGetMemInfo(int kind, size_t *free_bytes, size_t *total_bytes) {
  (void)kind;
  *free_bytes = (size_t)60 << 30;
  *total_bytes = (size_t)64 << 30;
  return 0;
}
int aclrtMemcpy(void *to, size_t room, const void *from, size_t n, int kind) {
  (void)room, (void)kind;
  memcpy(to, from, n);
  return (int)standin_answer("aclrtMemcpy", 0);
}
int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t n, int kind, void *stream) {
  (void)room, (void)kind, (void)stream;
  memcpy(to, from, n);
  return (int)standin_answer("aclrtMemcpyAsync", 0);
}
size_t aclGetCompileoptSize(int option) { return (void)option, 16; }
int aclGetCompileopt(int option, char *value, size_t n) {
  (void)option;
  memset(value, 0, n);
  strcpy(value, "1");
  return 0;
}
int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t *value) {
  (void)device, (void)module, (void)info;
  return *value = 0, 0;
}
int halGetAPIVersion(int *version) { return *version = 0x072211, 0; }
