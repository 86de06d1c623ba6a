/* Makes a link slow: once SLOW_LINK_FLAG is there, each KiB written into a socket takes SLOW_LINK_US more in the rank
   SLOW_LINK_RANK. LD_PRELOAD in all ranks. Connections of the store (small writes) are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LEAST_BYTES = 4096 };

static int is_here(void) {
  const char *flag = getenv("SLOW_LINK_FLAG"), *rank = getenv("RANK"), *slow = getenv("SLOW_LINK_RANK");
  return flag && rank && slow && !strcmp(rank, slow) && !access(flag, F_OK);
}

static void hold_up(int fd, size_t bytes) {
  const char *us = getenv("SLOW_LINK_US");
  struct stat status;
  if (bytes < LEAST_BYTES || !us || !is_here() || fstat(fd, &status) || !S_ISSOCK(status.st_mode)) return;
  usleep((useconds_t)(atof(us) * (double)bytes / 1024));
}

static size_t bytes_of(const struct iovec *iov, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; i++) sum += iov[i].iov_len;
  return sum;
}

ssize_t writev(int fd, const struct iovec *iov, int count) {
  static ssize_t (*next)(int, const struct iovec *, int);
  if (!next) next = dlsym(RTLD_NEXT, "writev");
  hold_up(fd, bytes_of(iov, (size_t)count));
  return next(fd, iov, count);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  static ssize_t (*next)(int, const struct msghdr *, int);
  if (!next) next = dlsym(RTLD_NEXT, "sendmsg");
  hold_up(fd, bytes_of(message->msg_iov, message->msg_iovlen));
  return next(fd, message, flags);
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
  static ssize_t (*next)(int, const void *, size_t, int);
  if (!next) next = dlsym(RTLD_NEXT, "send");
  hold_up(fd, size);
  return next(fd, data, size, flags);
}

ssize_t write(int fd, const void *data, size_t size) {
  static ssize_t (*next)(int, const void *, size_t);
  if (!next) next = dlsym(RTLD_NEXT, "write");
  hold_up(fd, size);
  return next(fd, data, size);
}
