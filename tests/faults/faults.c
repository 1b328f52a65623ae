/* Preloaded under a process: counts its operations on files below one folder, and fails the k-th in one way.

   cc -shared -fPIC -O1 -o faults.so faults.c -ldl
   faults_arm(root, k, how): from now on count; 0 = only count. how: 1 kill before, 2 kill after, 3 tear (half a write, then
   kill), 4 no space, 5 I/O error, 6 half a write. faults_count(): operations so far. Syncs are counted and not waited for.
   Closing is not counted: the system closes what a dead process held, and whoever closes cannot do anything about an error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { COUNT, BEFORE, AFTER, TEAR, FULL, BROKEN, HALF };
static char root[PATH_MAX];
static long count, wanted;
static int way, armed;

void faults_arm(const char *folder, long k, int how) {
    armed = 0;
    snprintf(root, sizeof root, "%s", folder);
    count = 0, wanted = k, way = how, armed = 1;
}
void faults_disarm(void) { armed = 0; }
long faults_count(void) { return count; }

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

static int below(const char *path) {
    char full[PATH_MAX];
    if (!armed || !path) return 0;
    if (path[0] != '/') {
        if (!getcwd(full, sizeof full)) return 0;
        size_t used = strlen(full);
        snprintf(full + used, sizeof full - used, "/%s", path);
        path = full;
    }
    size_t n = strlen(root);
    return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == 0);
}
static int below_at(int dir, const char *path) {
    char link[64], full[PATH_MAX];
    if (!armed || !path) return 0;
    if (path[0] == '/' || dir == AT_FDCWD) return below(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, full, sizeof full - 1);
    if (n < 0) return 0;
    full[n] = 0;
    return below(full);
}
static int below_fd(int fd) { return below_at(fd, "."); }

/* 0: do it; else the error to give back */
static int enter(int mine) {
    if (!mine || ++count != wanted) return 0;
    if (way == BEFORE) die();
    if (way == FULL) return ENOSPC;
    if (way == BROKEN) return EIO;
    return 0;
}
static int hit(int mine) { return mine && count == wanted; }
#define LEAVE(mine) do { if (hit(mine) && (way == AFTER || way == TEAR)) die(); } while (0)
#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL(mine) do { int e = enter(mine); if (e) { errno = e; return -1; } } while (0)

static int writes(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0; }
#define OPEN(name, test, args, ...) { \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
    REAL(name); int mine = writes(flags) && test; FAIL(mine); int got = real args; LEAVE(mine); return got; }
int open(const char *path, int flags, ...) OPEN(open, below(path), (path, flags, mode))
int open64(const char *path, int flags, ...) OPEN(open64, below(path), (path, flags, mode))
int openat(int dir, const char *path, int flags, ...) OPEN(openat, below_at(dir, path), (dir, path, flags, mode))
int openat64(int dir, const char *path, int flags, ...) OPEN(openat64, below_at(dir, path), (dir, path, flags, mode))

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    int mine = below_fd(fd);
    FAIL(mine);
    if (hit(mine) && (way == TEAR || way == HALF)) size /= 2;
    ssize_t got = real(fd, data, size);
    LEAVE(mine);
    return got;
}
#define SYNCED(mine) FAIL(mine); LEAVE(mine); return 0
int fsync(int fd) { REAL(fsync); int mine = below_fd(fd); if (!armed) return real(fd); SYNCED(mine); }
int fdatasync(int fd) { REAL(fdatasync); int mine = below_fd(fd); if (!armed) return real(fd); SYNCED(mine); }
int syncfs(int fd) { REAL(syncfs); int mine = below_fd(fd); if (!armed) return real(fd); SYNCED(mine); }
#define CALL(name, types, test, args) int name types { REAL(name); int mine = test; FAIL(mine); int got = real args; LEAVE(mine); return got; }
CALL(ftruncate, (int fd, off_t size), below_fd(fd), (fd, size))
CALL(ftruncate64, (int fd, off64_t size), below_fd(fd), (fd, size))
CALL(rename, (const char *from, const char *to), below(to), (from, to))
CALL(renameat, (int a, const char *from, int b, const char *to), below_at(b, to), (a, from, b, to))
CALL(renameat2, (int a, const char *from, int b, const char *to, unsigned flags), below_at(b, to), (a, from, b, to, flags))
CALL(unlink, (const char *path), below(path), (path))
CALL(unlinkat, (int dir, const char *path, int flags), below_at(dir, path), (dir, path, flags))
CALL(mkdir, (const char *path, mode_t mode), below(path), (path, mode))
CALL(mkdirat, (int dir, const char *path, mode_t mode), below_at(dir, path), (dir, path, mode))
CALL(rmdir, (const char *path), below(path), (path))
