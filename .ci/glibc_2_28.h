/* Included before the engine's source where a wheel is built: what glibc 2.34 moved from libpthread into libc is asked
 * for by the version that it had before, so that the wheel loads from glibc 2.28 on (manylinux_2_28).
 * Source: glibc 2.36, sysdeps/unix/sysv/linux/{x86_64/64,aarch64}/{libc,libpthread}.abilist. */
#if defined(__x86_64__)
#define BEFORE(name, version) __asm__(".symver " #name "," #name "@GLIBC_" version)
BEFORE(pthread_condattr_setclock, "2.3.3");
BEFORE(pthread_create, "2.2.5");
BEFORE(pthread_join, "2.2.5");
BEFORE(pthread_key_create, "2.2.5");
BEFORE(pthread_mutex_trylock, "2.2.5");
BEFORE(pthread_setspecific, "2.2.5");
BEFORE(pthread_sigmask, "2.2.5");
#elif defined(__aarch64__)
#define BEFORE(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
BEFORE(pthread_condattr_setclock);
BEFORE(pthread_create);
BEFORE(pthread_join);
BEFORE(pthread_key_create);
BEFORE(pthread_mutex_trylock);
BEFORE(pthread_setspecific);
BEFORE(pthread_sigmask);
#endif
