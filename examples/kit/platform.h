/* platform.h - what the examples use of the operating system: POSIX, and a part of it on Windows.
 *
 * On POSIX it includes headers. On Windows (mingw-w64, clang-cl) platform.c provides the POSIX
 * functions below under their names. Paths, arguments and environment variables are UTF-8, files
 * are opened in binary mode, and functions that have no counterpart report success and do nothing,
 * or fail with ENOSYS. Include it after the macros that select POSIX and before other headers.
 */
#ifndef PLATFORM_H
#define PLATFORM_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>

/* What programs are called: packages may install them with a prefix. */
#ifdef PROGRAM_PREFIX
#define PROGRAM(name) PROGRAM_PREFIX name
#define BUILT(name) PROGRAM_PREFIX name
#define FETCH PROGRAM_PREFIX "fetch"
#else
#define PROGRAM(name) name
#define BUILT(name) "build/" name
#define FETCH "examples/fetch.sh"
#endif

#ifndef _WIN32
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>
typedef size_t platform_size; /* of read() and write() */
#else
#include <direct.h>
#include <io.h>
typedef unsigned platform_size;
#ifdef _MSC_VER
typedef ptrdiff_t ssize_t;
typedef int mode_t;
#else
#include <unistd.h>
#endif
typedef int uid_t, gid_t;
#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

/* ---- files ---- */
#define O_CLOEXEC _O_NOINHERIT
#define O_NONBLOCK 0
#define O_NOCTTY 0
#ifndef O_ACCMODE
#define O_ACCMODE (_O_RDONLY | _O_WRONLY | _O_RDWR)
#endif
#ifndef STDIN_FILENO
#define STDIN_FILENO 0
#define STDOUT_FILENO 1
#define STDERR_FILENO 2
#endif
#ifndef F_OK
#define F_OK 0
#define W_OK 2
#endif
#ifndef S_ISREG
#define S_ISREG(mode) (((mode) & _S_IFMT) == _S_IFREG)
#define S_ISDIR(mode) (((mode) & _S_IFMT) == _S_IFDIR)
#endif
#define S_ISLNK(mode) ((void)(mode), 0)
#define F_GETFD 1
#define F_GETFL 3

/* st_dev and st_ino identify a file, also after it was opened under another name. */
struct platform_stat {
    uint64_t st_dev, st_ino;
    int64_t st_size;
    mode_t st_mode;
    unsigned st_nlink;
    uid_t st_uid;
    gid_t st_gid;
};
#define dev_t uint64_t
#define ino_t uint64_t
#define off_t int64_t
#ifndef EDQUOT
#define EDQUOT 122
#endif

int platform_open(const char *path, int flags, ...);
int64_t platform_lseek(int fd, int64_t offset, int whence);
int64_t platform_pread(int fd, void *buffer, size_t size, int64_t offset);
int platform_stat(const char *path, struct platform_stat *info);
int platform_fstat(int fd, struct platform_stat *info);
int platform_access(const char *path, int mode);
int platform_unlink(const char *path);
int platform_rename(const char *from, const char *to); /* replaces to, as on POSIX */
int platform_mkstemp(char *name);
int platform_mkdir(const char *path, mode_t mode);
mode_t platform_umask(mode_t mask);
int platform_fcntl(int fd, int command);
char *platform_realpath(const char *path, char *unused);
char *platform_getenv(const char *name);
FILE *platform_fopen(const char *path, const char *mode);

#define open platform_open
#define lseek platform_lseek
#define pread platform_pread
#define stat platform_stat
#define lstat platform_stat
#define fstat platform_fstat
#define access platform_access
#define unlink platform_unlink
#define rename platform_rename
#define mkstemp platform_mkstemp
#define fcntl platform_fcntl
#define realpath platform_realpath
#define getenv platform_getenv
#define fopen platform_fopen
#define fsync _commit
#define umask platform_umask
#define mkdir platform_mkdir
#define fchmod(fd, mode) ((void)(fd), (void)(mode), 0)
#define fchown(fd, uid, gid) ((void)(fd), (void)(uid), (void)(gid), 0)
#define readlink(path, buffer, size) ((void)(path), (void)(buffer), (void)(size), -1)

/* Waits until one descriptor can be read. Files and consoles always can. */
struct pollfd {
    int fd;
    short events, revents;
};
#define POLLIN 1
#define poll platform_poll
int platform_poll(struct pollfd *p, int count, int timeout_ms);

/* FIONREAD of a pipe. */
#define FIONREAD 1
#define ioctl platform_ioctl
int platform_ioctl(int fd, int request, int *bytes);

/* ---- options ---- */
#define no_argument 0
#define required_argument 1
struct option {
    const char *name;
    int has_arg;
    int *flag;                /* NULL */
    int val;
};
#define getopt_long platform_getopt
#define optarg platform_optarg
#define optind platform_optind
#define opterr platform_opterr
extern char *platform_optarg;
extern int platform_optind, platform_opterr;
/* As with letters that begin with ':': ':' for a missing value, '?' for an unknown option. */
int platform_getopt(int argc, char **argv, const char *letters, const struct option *known,
                    int *unused);
#endif

/* The name of a file without its directories. On Windows \ and : separate them as well as /. */
const char *platform_name(const char *path);

/* Whether path begins at the root of a file system. */
int platform_is_absolute(const char *path);

/* The user's home directory, or the one for temporary files, or NULL. */
const char *platform_home(void);
const char *platform_temporary(void);

/* To be called first in main(). Replaces descriptors 0 to 2 that are closed by descriptors that
 * fail, because the next file opened would get their numbers, and ignores signals of outputs that
 * fail, because that is no reason to lose the others. On Windows, replaces the arguments by UTF-8,
 * and sets the console and the standard descriptors to UTF-8 and binary mode. */
void platform_start(int *argc, char ***argv);

/* errno after a write that failed, EPIPE if its reader has gone, which Windows's C library calls an
 * invalid argument. */
int platform_write_error(void);

/* Calls handler for Ctrl-C, and where the system has them for SIGTERM and SIGHUP. A signal that was
 * ignored at the start, as with nohup, stays ignored. Elsewhere than on Windows, signals within
 * half a second of the last one that was passed on are taken for the same one and are not passed
 * on. */
void platform_catch(void (*handler)(int number));

/* Milliseconds from an arbitrary start; never goes back. */
int64_t platform_now_ms(void);

/* Until platform_release(), this thread and those it starts receive no signal. */
#ifdef _WIN32
typedef int platform_signals;
#else
typedef sigset_t platform_signals;
#endif
void platform_hold(platform_signals *before);
void platform_release(const platform_signals *before);

#endif
