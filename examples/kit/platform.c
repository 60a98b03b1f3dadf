/* platform.c - see platform.h */
#define _XOPEN_SOURCE 700

#include "platform.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#ifndef _WIN32

int64_t platform_now_ms(void)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *platform_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

int platform_is_absolute(const char *path) { return path[0] == '/'; }

const char *platform_home(void) { return getenv("HOME"); }

const char *platform_temporary(void)
{
    const char *directory = getenv("TMPDIR");
    return directory != NULL && directory[0] != '\0' ? directory : "/tmp";
}

int platform_write_error(void)
{
    return errno;
}

void platform_start(int *argc, char ***argv)
{
    struct sigaction action;
    int fd;
    (void)argc;
    (void)argv;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_IGN;
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

/* Programs that end others send several signals at once: timeout(1) one to the process and one to
 * its group, wrappers forward the Ctrl-C that the terminal has already sent, and init systems send
 * SIGHUP after SIGTERM. */
enum { REPEATED_MS = 250 };

static void (*on_interrupt)(int number);
static int64_t interrupted_ms; /* when the handler was called last */

/* The signals block each other meanwhile. */
static void on_signal(int number)
{
    int64_t now = platform_now_ms();
    if (interrupted_ms == 0 || now - interrupted_ms >= REPEATED_MS) {
        interrupted_ms = now;
        on_interrupt(number);
    }
}

void platform_catch(void (*handler)(int number))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action, before;
    size_t i;
    on_interrupt = handler;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaddset(&action.sa_mask, numbers[i]);
    }
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
}

void platform_hold(platform_signals *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void platform_release(const platform_signals *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

#else /* Windows */
#define WIN32_LEAN_AND_MEAN 1
#include <windows.h>
#include <shellapi.h>
#include <stdarg.h>
#include <wchar.h>

#define WIDE 4096             /* UTF-16 units of a path with its terminator */
#define POLL_MS 10            /* interval at which a pipe is examined */

int64_t platform_now_ms(void)
{
    return (int64_t)GetTickCount64();
}

/* ---- text ---- */

/* Converts UTF-8. Returns 0, or -1 with errno set. */
static int to_wide(const char *text, wchar_t wide[WIDE])
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, WIDE) > 0) {
        return 0;
    }
    errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : EILSEQ;
    return -1;
}

/* The caller frees the result. NULL: no memory. */
static char *to_utf8(const wchar_t *wide)
{
    int n = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *text = n > 0 ? malloc((size_t)n) : NULL;
    if (text != NULL) {
        (void)WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, n, NULL, NULL);
    }
    return text;
}

int platform_write_error(void)
{
    return _doserrno == ERROR_NO_DATA || _doserrno == ERROR_BROKEN_PIPE ||
                   _doserrno == ERROR_PIPE_NOT_CONNECTED ? EPIPE : errno;
}

static int failed(void)
{
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND:
    case ERROR_BAD_NETPATH: errno = ENOENT; break;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION: errno = EACCES; break;
    case ERROR_ALREADY_EXISTS:
    case ERROR_FILE_EXISTS: errno = EEXIST; break;
    case ERROR_TOO_MANY_OPEN_FILES: errno = EMFILE; break;
    case ERROR_FILENAME_EXCED_RANGE: errno = ENAMETOOLONG; break;
    case ERROR_INVALID_HANDLE: errno = EBADF; break;
    case ERROR_INVALID_NAME: errno = EINVAL; break; /* a name with a quote, for instance */
    case ERROR_NOT_ENOUGH_MEMORY: errno = ENOMEM; break;
    case ERROR_DISK_FULL: errno = ENOSPC; break;
    default: errno = EIO; break;
    }
    return -1;
}

/* Keeps each variable that was asked for; examples ask for a few, a few times. */
char *platform_getenv(const char *name)
{
    wchar_t wide[WIDE];
    const wchar_t *value = to_wide(name, wide) == 0 ? _wgetenv(wide) : NULL;
    return value != NULL ? to_utf8(value) : NULL;
}

const char *platform_name(const char *path)
{
    const char *name = path;
    for (; *path != '\0'; path++) {
        name = *path == '/' || *path == '\\' || *path == ':' ? path + 1 : name;
    }
    return name;
}

int platform_is_absolute(const char *path)
{
    return path[0] == '/' || path[0] == '\\' || (path[0] != '\0' && path[1] == ':');
}

const char *platform_home(void) { return platform_getenv("USERPROFILE"); }

const char *platform_temporary(void)
{
    const char *directory = platform_getenv("TEMP");
    return directory != NULL ? directory : ".";
}

/* ---- files ---- */

/* With FILE_SHARE_DELETE, which _wopen() does not set: what is read may be renamed and replaced. */
static int open_to_read(const wchar_t *wide)
{
    HANDLE handle = CreateFileW(wide, GENERIC_READ,
                                FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    int fd = handle == INVALID_HANDLE_VALUE ? failed()
             : _open_osfhandle((intptr_t)handle, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
    if (fd < 0 && handle != INVALID_HANDLE_VALUE) {
        CloseHandle(handle);
    }
    return fd;
}

int platform_open(const char *path, int flags, ...)
{
    wchar_t wide[WIDE];
    if (to_wide(path, wide) != 0) {
        return -1;
    }
    if ((flags & O_ACCMODE) == _O_RDONLY && (flags & _O_CREAT) == 0) {
        DWORD attributes = GetFileAttributesW(wide);
        if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0) {
            errno = EISDIR;
            return -1;
        }
        return open_to_read(wide);
    }
    return _wopen(wide, flags | _O_BINARY, _S_IREAD | _S_IWRITE);
}

FILE *platform_fopen(const char *path, const char *mode)
{
    wchar_t wide[WIDE], how[16];
    size_t i, n = strlen(mode);
    for (i = 0; i <= n && n < 16; i++) {
        how[i] = (wchar_t)mode[i];
    }
    return n < 16 && to_wide(path, wide) == 0 ? _wfopen(wide, how) : NULL;
}

int64_t platform_lseek(int fd, int64_t offset, int whence)
{
    return _lseeki64(fd, offset, whence);
}

int64_t platform_pread(int fd, void *buffer, size_t size, int64_t offset)
{
    OVERLAPPED at;
    DWORD got = 0;
    memset(&at, 0, sizeof at);
    at.Offset = (DWORD)((uint64_t)offset & 0xffffffffu);
    at.OffsetHigh = (DWORD)((uint64_t)offset >> 32);
    if (!ReadFile((HANDLE)_get_osfhandle(fd), buffer, size < 1u << 30 ? (DWORD)size : 1u << 30,
                  &got, &at)) {
        return GetLastError() == ERROR_HANDLE_EOF ? 0 : failed();
    }
    return (int64_t)got;
}

static int describe(HANDLE handle, struct platform_stat *info)
{
    BY_HANDLE_FILE_INFORMATION file;
    memset(info, 0, sizeof *info);
    info->st_nlink = 1;
    if (GetFileType(handle) != FILE_TYPE_DISK) {
        info->st_mode = _S_IFCHR;
        return 0;
    }
    if (!GetFileInformationByHandle(handle, &file)) { /* wine: a redirected standard output */
        info->st_mode = _S_IFREG;
        return 0;
    }
    info->st_mode = (file.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? _S_IFDIR : _S_IFREG;
    info->st_dev = file.dwVolumeSerialNumber;
    info->st_ino = (uint64_t)file.nFileIndexHigh << 32 | file.nFileIndexLow;
    info->st_size = (int64_t)((uint64_t)file.nFileSizeHigh << 32 | file.nFileSizeLow);
    info->st_nlink = file.nNumberOfLinks;
    return 0;
}

int platform_fstat(int fd, struct platform_stat *info)
{
    intptr_t handle = _get_osfhandle(fd);
    return handle == -1 ? (errno = EBADF, -1) : describe((HANDLE)handle, info);
}

int platform_stat(const char *path, struct platform_stat *info)
{
    wchar_t wide[WIDE];
    HANDLE handle;
    int status;
    if (to_wide(path, wide) != 0) {
        return -1;
    }
    handle = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                         OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL); /* also directories */
    if (handle == INVALID_HANDLE_VALUE) {
        return failed();
    }
    status = describe(handle, info);
    CloseHandle(handle);
    return status;
}

int platform_access(const char *path, int mode)
{
    wchar_t wide[WIDE];
    return to_wide(path, wide) == 0 ? _waccess(wide, mode) : -1;
}

int platform_unlink(const char *path)
{
    wchar_t wide[WIDE];
    return to_wide(path, wide) != 0 ? -1 : DeleteFileW(wide) ? 0 : failed();
}

int platform_rename(const char *from, const char *to)
{
    wchar_t wide_from[WIDE], wide_to[WIDE];
    if (to_wide(from, wide_from) != 0 || to_wide(to, wide_to) != 0) {
        return -1;
    }
    return MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING) ? 0 : failed();
}

int platform_mkstemp(char *name)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char *end = name + strlen(name);
    LARGE_INTEGER now;
    int tries, fd = -1;
    (void)QueryPerformanceCounter(&now);
    for (tries = 0; tries < 100 && fd < 0; tries++) {
        uint64_t value = ((uint64_t)now.QuadPart + (uint64_t)tries) * 6364136223846793005u +
                         GetCurrentProcessId();
        int i;
        for (i = 1; i <= 6; i++, value /= 36) {
            end[-i] = digits[(value >> 24) % 36];
        }
        fd = platform_open(name, _O_RDWR | _O_CREAT | _O_EXCL | _O_NOINHERIT, 0600);
        if (fd < 0 && errno != EEXIST) {
            break;
        }
    }
    return fd;
}

int platform_mkdir(const char *path, mode_t mode)
{
    wchar_t wide[WIDE];
    (void)mode;
    return to_wide(path, wide) == 0 ? _wmkdir(wide) : -1;
}

mode_t platform_umask(mode_t mask) { return mask; }

/* F_GETFL answers for reading and writing: Windows does not tell. */
int platform_fcntl(int fd, int command)
{
    (void)command;
    return _get_osfhandle(fd) == -1 ? (errno = EBADF, -1) : _O_RDWR;
}

char *platform_realpath(const char *path, char *unused)
{
    wchar_t wide[WIDE], whole[WIDE];
    char *text = NULL, *at;
    DWORD n = to_wide(path, wide) == 0 ? GetFullPathNameW(wide, WIDE, whole, NULL) : 0;
    (void)unused;
    if (n > 0 && n < WIDE) {
        text = GetFileAttributesW(whole) != INVALID_FILE_ATTRIBUTES ? to_utf8(whole) : NULL;
        if (text == NULL) {
            (void)failed();
        }
    }
    for (at = text; at != NULL && *at != '\0'; at++) {
        *at = *at == '\\' ? '/' : *at;
    }
    return text;
}

/* Bytes that a pipe holds; -1 if fd is none, or if its writer has gone. */
static int in_pipe(int fd)
{
    DWORD bytes = 0;
    HANDLE handle = (HANDLE)_get_osfhandle(fd);
    return GetFileType(handle) == FILE_TYPE_PIPE &&
           PeekNamedPipe(handle, NULL, 0, NULL, &bytes, NULL) ? (int)bytes : -1;
}

int platform_ioctl(int fd, int request, int *bytes)
{
    int n = in_pipe(fd);
    (void)request;
    *bytes = n > 0 ? n : 0;
    return n < 0 ? -1 : 0;
}

int platform_poll(struct pollfd *p, int count, int timeout_ms)
{
    (void)count;
    for (; in_pipe(p->fd) == 0; timeout_ms -= POLL_MS) {
        if (timeout_ms <= 0) {
            return 0;
        }
        Sleep(POLL_MS);
    }
    p->revents = POLLIN;
    return 1;
}

/* ---- options ---- */
char *platform_optarg;
int platform_optind = 1, platform_opterr;

/* Moves argument number from before number to, which is smaller. */
static void move(char **argv, int from, int to)
{
    char *moved = argv[from];
    memmove(&argv[to + 1], &argv[to], (size_t)(from - to) * sizeof *argv);
    argv[to] = moved;
}

/* The option whose name begins with the first n bytes of name: exactly, or as the only one. */
static const struct option *find(const struct option *known, const char *name, size_t n)
{
    const struct option *one = NULL;
    int matches = 0;
    for (; known->name != NULL; known++) {
        if (strncmp(known->name, name, n) == 0) {
            one = known;
            matches++;
            if (known->name[n] == '\0') {
                return known;
            }
        }
    }
    return matches == 1 ? one : NULL;
}

/* Options and their values are moved before the other arguments, of which argv[optind] is the
 * first; next_at is the argument to look at next. */
static int next_at = 1;

/* The value of an option: text if that is not NULL, else the next argument. */
static int take_value(int argc, char **argv, const char *text, int found)
{
    if (text != NULL) {
        optarg = (char *)(uintptr_t)text;
        return found;
    }
    if (next_at >= argc) {
        return ':';
    }
    optarg = argv[next_at];
    move(argv, next_at++, optind++);
    return found;
}

/* --name, --name=value or --name value. */
static int long_option(int argc, char **argv, const char *name, const struct option *known)
{
    const char *equals = strchr(name, '=');
    const struct option *one =
        find(known, name, equals != NULL ? (size_t)(equals - name) : strlen(name));
    return one == NULL || (equals != NULL && one->has_arg == no_argument) ? '?'
           : one->has_arg == no_argument ? one->val
           : take_value(argc, argv, equals != NULL ? equals + 1 : NULL, one->val);
}

int platform_getopt(int argc, char **argv, const char *letters, const struct option *known,
                    int *unused)
{
    static const char *rest;  /* letters that follow in the same argument */
    const char *row, *value;
    char letter;
    (void)unused;
    optarg = NULL;
    if (rest == NULL || *rest == '\0') {
        const char *argument;
        while (next_at < argc && (argv[next_at][0] != '-' || argv[next_at][1] == '\0')) {
            next_at++;
        }
        if (next_at >= argc) {
            return -1;
        }
        argument = argv[next_at];
        move(argv, next_at++, optind++);
        if (argument[1] == '-') {
            return argument[2] == '\0' ? -1 : long_option(argc, argv, argument + 2, known);
        }
        rest = argument + 1;
    }
    letter = *rest++;
    row = letter != ':' ? strchr(letters, letter) : NULL;
    value = *rest != '\0' ? rest : NULL;
    if (row == NULL || row[1] != ':') {
        return row == NULL ? '?' : letter;
    }
    rest = NULL;
    return take_value(argc, argv, value, letter);
}

/* ---- the program ---- */
static void (*on_interrupt)(int number);
static UINT console_before;   /* its code page */

static void restore_console(void) { (void)SetConsoleOutputCP(console_before); }

/* Lets the terminal understand the sequences that erase a line. */
static void use_sequences(DWORD which)
{
    HANDLE handle = GetStdHandle(which);
    DWORD mode;
    if (GetConsoleMode(handle, &mode)) {
        (void)SetConsoleMode(handle, mode | 4); /* ENABLE_VIRTUAL_TERMINAL_PROCESSING */
    }
}

void platform_start(int *argc, char ***argv)
{
    int i, n = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **text = wide != NULL ? calloc((size_t)n + 1, sizeof *text) : NULL;
    for (i = 0; text != NULL && i < n; i++) {
        text[i] = to_utf8(wide[i]);
        if (text[i] == NULL) {
            text = NULL;
        }
    }
    if (text != NULL) {
        *argc = n;
        *argv = text;
    }
    LocalFree(wide);
    (void)_setmode(STDIN_FILENO, _O_BINARY);
    (void)_setmode(STDOUT_FILENO, _O_BINARY);
    console_before = GetConsoleOutputCP();
    if (console_before != 0 && SetConsoleOutputCP(CP_UTF8)) {
        atexit(restore_console);
    }
    use_sequences(STD_OUTPUT_HANDLE);
    use_sequences(STD_ERROR_HANDLE);
}

/* Runs in a thread of its own. When its window is closed, the program has a few seconds. */
static BOOL WINAPI on_console(DWORD event)
{
    on_interrupt(event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT ? SIGINT : SIGTERM);
    if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) {
        Sleep(INFINITE); /* the process ends when this returns */
    }
    return TRUE;
}

void platform_catch(void (*handler)(int number))
{
    on_interrupt = handler;
    (void)SetConsoleCtrlHandler(on_console, TRUE);
}

void platform_hold(platform_signals *before) { *before = 0; }
void platform_release(const platform_signals *before) { (void)before; }
#endif
