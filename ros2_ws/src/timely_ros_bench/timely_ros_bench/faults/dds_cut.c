#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const char *cut_flag;
static const char *state_folder;
static int low, high;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("TIMELY_CUT_FILE"), *from = getenv("TIMELY_CUT_LOW"), *to = getenv("TIMELY_CUT_HIGH");
    if (!file || !from || !to) return;
    int handle = open(file, O_RDONLY);
    if (handle < 0) return;
    void *page = mmap(0, 1, PROT_READ, MAP_SHARED, handle, 0);
    if (page != MAP_FAILED) cut_flag = page;
    state_folder = getenv("TIMELY_CUT_STATE");
    low = atoi(from);
    high = atoi(to);
}

/* The second byte: 0 the true time, 1 an hour ahead, 2 an hour behind. */
static long jump(void) {
    char clock = cut_flag ? cut_flag[1] : '0';
    return clock == '1' ? 3600 : clock == '2' ? -3600 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (result == 0) now->tv_sec += jump();
    return result;
}

time_t time(time_t *now) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (now) *now = read.tv_sec;
    return read.tv_sec;
}

/* A wait keeps its length. Times of the monotonic clock, which some conditions use, are far smaller. */
static struct timespec true_time(const struct timespec *until) {
    struct timespec real = *until;
    if (real.tv_sec > 1000000000) real.tv_sec -= jump();
    return real;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec moment = true_time(until);
    return real(condition, mutex, &moment);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_mutex_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
    struct timespec moment = true_time(until);
    return real(mutex, &moment);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec moment = true_time(until);
    return real(semaphore, &moment);
}

/* The first byte: 0 open, 1 both ways, 2 what is sent, 3 what comes. */
static int cut(char one_way) { return cut_flag && (*cut_flag == '1' || *cut_flag == one_way); }

static int ours(const struct sockaddr *address) {
    if (!address || address->sa_family != AF_INET) return 0;
    int port = ntohs(((const struct sockaddr_in *)address)->sin_port);
    return port >= low && port < high;
}

static int ours_here(int handle) {
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    return cut('3') && getsockname(handle, (struct sockaddr *)&here, &size) == 0 && ours((struct sockaddr *)&here);
}

ssize_t sendto(int handle, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
    static ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    if (!real) real = dlsym(RTLD_NEXT, "sendto");
    return cut('2') && ours(to) ? (ssize_t)size : real(handle, data, size, flags, to, length);
}

ssize_t sendmsg(int handle, const struct msghdr *message, int flags) {
    static ssize_t (*real)(int, const struct msghdr *, int);
    if (!real) real = dlsym(RTLD_NEXT, "sendmsg");
    if (!cut('2') || !ours(message->msg_name)) return real(handle, message, flags);
    ssize_t size = 0;
    for (size_t i = 0; i < (size_t)message->msg_iovlen; i++) size += message->msg_iov[i].iov_len;
    return size;
}

ssize_t recvfrom(int handle, void *data, size_t size, int flags, struct sockaddr *from, socklen_t *length) {
    static ssize_t (*real)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    if (!real) real = dlsym(RTLD_NEXT, "recvfrom");
    for (;;) {
        ssize_t got = real(handle, data, size, flags, from, length);
        if (got < 0 || (flags & MSG_PEEK) || !ours_here(handle)) return got;
        if (flags & MSG_DONTWAIT) { errno = EAGAIN; return -1; }
    }
}

ssize_t recvmsg(int handle, struct msghdr *message, int flags) {
    static ssize_t (*real)(int, struct msghdr *, int);
    if (!real) real = dlsym(RTLD_NEXT, "recvmsg");
    for (;;) {
        ssize_t got = real(handle, message, flags);
        if (got < 0 || (flags & MSG_PEEK) || !ours_here(handle)) return got;
        if (flags & MSG_DONTWAIT) { errno = EAGAIN; return -1; }
    }
}

/* The third byte: 1 and nothing of the state folder reaches the disk: each call waits until the byte is 0 again. */
static int of_state(const char *path) {
    return state_folder && *state_folder && strncmp(path, state_folder, strlen(state_folder)) == 0;
}

static void await_disk(const char *path) {
    while (cut_flag && cut_flag[2] == '1' && of_state(path)) usleep(20000);
}

static void await_disk_of(int handle) {
    if (!cut_flag || cut_flag[2] != '1') return;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return;
    path[size] = 0;
    await_disk(path);
}

ssize_t write(int handle, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    await_disk_of(handle);
    return real(handle, data, size);
}

ssize_t pwrite(int handle, const void *data, size_t size, off_t place) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite");
    await_disk_of(handle);
    return real(handle, data, size, place);
}

ssize_t pwrite64(int handle, const void *data, size_t size, off64_t place) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    await_disk_of(handle);
    return real(handle, data, size, place);
}

int fsync(int handle) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    await_disk_of(handle);
    return real(handle);
}

int fdatasync(int handle) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    await_disk_of(handle);
    return real(handle);
}

int rename(const char *old, const char *new) {
    static int (*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "rename");
    await_disk(new);
    return real(old, new);
}

int unlink(const char *path) {
    static int (*real)(const char *);
    if (!real) real = dlsym(RTLD_NEXT, "unlink");
    await_disk(path);
    return real(path);
}
