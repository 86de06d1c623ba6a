/* Log, asked-for failures, and the profiler calls of the stand-in CANN, in libascendcl.so. See
 * mstxkit/testing/stand_in.py. */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- settings, read once ---- */
enum { FAILS_AT_MOST = 32 };
struct fail {
  char call[64];
  long at, code; /* at 0: every use */
  _Atomic long used;
};

static int log_fd = -1;
static struct fail fails[FAILS_AT_MOST];
static int fail_count;
static int mstx_mode; /* 0 profiler, 1 on, -1 off */
static double rate_bytes_s;
static long start_bytes;

/* call:at:code, separated by semicolons */
static void read_fails(const char *text) {
  while (text && *text && fail_count < FAILS_AT_MOST) {
    struct fail *f = &fails[fail_count];
    if (sscanf(text, "%63[^:;]:%ld:%ld", f->call, &f->at, &f->code) == 3) ++fail_count;
    text = strchr(text, ';');
    if (text) ++text;
  }
}

__attribute__((constructor)) static void read_settings(void) {
  const char *path = getenv("MSTXKIT_STANDIN_LOG");
  const char *mode = getenv("MSTXKIT_STANDIN_MSTX");
  const char *rate = getenv("MSTXKIT_STANDIN_RATE");
  const char *bytes = getenv("MSTXKIT_STANDIN_START_BYTES");
  if (path) log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  mstx_mode = !mode ? 0 : !strcmp(mode, "on") ? 1 : !strcmp(mode, "off") ? -1 : 0;
  rate_bytes_s = rate ? atof(rate) : 0;
  start_bytes = bytes ? atol(bytes) : 0;
  read_fails(getenv("MSTXKIT_STANDIN_FAIL"));
}

/* ---- log ---- */
static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void standin_log(const char *call, const char *fields, ...) {
  if (log_fd < 0) return;
  char line[16384];
  int n = snprintf(line, sizeof line, "{\"t_ns\": %lld, \"pid\": %d, \"tid\": %ld, \"call\": \"%s\"", now_ns(),
                   getpid(), syscall(SYS_gettid), call);
  va_list ap;
  va_start(ap, fields);
  n += vsnprintf(line + n, sizeof line - n - 3, fields, ap);
  va_end(ap);
  if (n > (int)sizeof line - 3) n = sizeof line - 3;
  line[n++] = '}';
  line[n++] = '\n';
  if (write(log_fd, line, n) < 0) { /* a full disk must not break the process under test */ }
}

const char *standin_escape(const char *text) {
  static _Thread_local char buffers[2][7000];
  static _Thread_local int which;
  char *out = buffers[which ^= 1];
  size_t n = 0;
  for (const unsigned char *p = (const unsigned char *)(text ? text : ""); *p && n < sizeof buffers[0] - 8; ++p) {
    if (*p == '"' || *p == '\\') {
      out[n++] = '\\';
      out[n++] = *p;
    } else if (*p < 0x20) {
      n += snprintf(out + n, 8, "\\u%04x", *p);
    } else {
      out[n++] = *p;
    }
  }
  out[n] = 0;
  return out;
}

/* ---- failures on demand ---- */
long standin_answer(const char *call, long normal) {
  for (int i = 0; i < fail_count; ++i) {
    if (strcmp(fails[i].call, call)) continue;
    long use = atomic_fetch_add(&fails[i].used, 1) + 1;
    if (fails[i].at == 0 || fails[i].at == use) return fails[i].code;
  }
  return normal;
}

/* ---- aclprof: one session, a PROF_* folder that grows ---- */
enum { MSPROFTX = 0x80, ACL_ERROR_REPEAT_INITIALIZE = 100002 };
struct config {
  uint64_t types;
};

static pthread_mutex_t session = PTHREAD_MUTEX_INITIALIZER;
static char result_path[2048], folder[2200];
static int initialized;
static _Atomic int mstx_recorded;
static _Atomic int growing;
static pthread_t writer;
static long long grows_since_ns;

int standin_takes_mstx(void) { return mstx_mode > 0 || (mstx_mode == 0 && atomic_load(&mstx_recorded)); }

static void append(int fd, long long bytes) {
  static const char zeros[1 << 16];
  while (bytes > 0) {
    ssize_t n = write(fd, zeros, bytes < (long long)sizeof zeros ? bytes : (long long)sizeof zeros);
    if (n <= 0) return;
    bytes -= n;
  }
}

/* Keeps one file at start_bytes + rate * (time since the start), and exactly there when it ends. */
static void *grow(void *unused) {
  (void)unused;
  char path[2400];
  snprintf(path, sizeof path, "%s/device_0/data/standin.slice_0", folder);
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  long long written = 0;
  int more = fd >= 0;
  while (more) {
    more = atomic_load(&growing);
    long long due = start_bytes + (long long)(rate_bytes_s * (now_ns() - grows_since_ns) / 1e9);
    append(fd, due - written);
    if (due > written) written = due;
    if (more) usleep(10000);
  }
  if (fd >= 0) close(fd);
  return 0;
}

static void make_folder(void) {
  static const char *const parts[] = {"", "/device_0", "/device_0/data", "/host", "/host/data"};
  static _Atomic int made;
  struct timespec t;
  struct tm day;
  char stamp[32], path[2400];
  clock_gettime(CLOCK_REALTIME, &t);
  gmtime_r(&t.tv_sec, &day);
  strftime(stamp, sizeof stamp, "%Y%m%d%H%M%S", &day);
  int number = atomic_fetch_add(&made, 1) + 1;
  snprintf(folder, sizeof folder, "%s/PROF_%06d_%s%03ld_STANDIN%08dA", result_path, number, stamp, t.tv_nsec / 1000000,
           getpid());
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
    snprintf(path, sizeof path, "%s%s", folder, parts[i]);
    mkdir(path, 0750);
  }
}

static void end_growing(void) {
  if (!atomic_exchange(&growing, 0)) return;
  pthread_join(writer, 0);
}

int aclprofInit(const char *path, size_t n) {
  int code = standin_answer("aclprofInit", initialized ? ACL_ERROR_REPEAT_INITIALIZE : 0);
  pthread_mutex_lock(&session);
  if (!code) {
    snprintf(result_path, sizeof result_path, "%.*s", (int)(n < 2000 ? n : 2000), path ? path : "");
    initialized = 1;
    folder[0] = 0;
  }
  pthread_mutex_unlock(&session);
  standin_log("aclprofInit", ", \"path\": \"%s\", \"code\": %d", standin_escape(result_path), code);
  return code;
}

void *aclprofCreateConfig(uint32_t *devices, uint32_t n, int metrics, void *events, uint64_t types) {
  (void)devices, (void)n, (void)events;
  struct config *made = standin_answer("aclprofCreateConfig", 0) ? 0 : calloc(1, sizeof *made);
  if (made) made->types = types;
  standin_log("aclprofCreateConfig", ", \"aic_metrics\": %d, \"types\": %llu, \"code\": %d", metrics,
              (unsigned long long)types, made == 0);
  return made;
}

int aclprofDestroyConfig(void *config) {
  free(config);
  return (int)standin_answer("aclprofDestroyConfig", 0);
}

int aclprofStart(void *config) {
  int code = (int)standin_answer("aclprofStart", 0);
  pthread_mutex_lock(&session);
  uint64_t types = config ? ((struct config *)config)->types : 0;
  if (!code) {
    if (!folder[0]) make_folder();
    atomic_store(&mstx_recorded, (types & MSPROFTX) != 0);
    if ((rate_bytes_s > 0 || start_bytes > 0) && !atomic_exchange(&growing, 1)) {
      grows_since_ns = now_ns();
      pthread_create(&writer, 0, grow, 0);
    }
  }
  pthread_mutex_unlock(&session);
  standin_log("aclprofStart", ", \"types\": %llu, \"path\": \"%s\", \"code\": %d", (unsigned long long)types,
              standin_escape(folder), code);
  return code;
}

int aclprofStop(void *config) {
  (void)config;
  int code = (int)standin_answer("aclprofStop", 0);
  pthread_mutex_lock(&session);
  if (!code) {
    atomic_store(&mstx_recorded, 0);
    end_growing();
  }
  pthread_mutex_unlock(&session);
  standin_log("aclprofStop", ", \"path\": \"%s\", \"code\": %d", standin_escape(folder), code);
  return code;
}

int aclprofFinalize(void) {
  int code = (int)standin_answer("aclprofFinalize", 0);
  pthread_mutex_lock(&session);
  if (!code) {
    atomic_store(&mstx_recorded, 0);
    end_growing();
    initialized = 0;
  }
  pthread_mutex_unlock(&session);
  standin_log("aclprofFinalize", ", \"code\": %d", code);
  return code;
}

int aclprofSetConfig(int kind, const char *value, size_t n) {
  int code = (int)standin_answer("aclprofSetConfig", 0);
  char text[256];
  snprintf(text, sizeof text, "%.*s", (int)(n < 255 ? n : 255), value ? value : "");
  standin_log("aclprofSetConfig", ", \"kind\": %d, \"message\": \"%s\", \"code\": %d", kind, standin_escape(text),
              code);
  return code;
}

int aclprofGetSupportedFeatures(size_t *n, void **features) { return (void)n, (void)features, 1; }
int aclprofGetSupportedFeaturesV2(size_t *n, void **features) { return (void)n, (void)features, 1; }
