/* With clang-cl's target; the sizes of SDK types matter only here. */
#include <stddef.h>
#define near
#define far
#define small char
#define WINAPI
#define CONST const
typedef int BOOL;
typedef unsigned long DWORD;
typedef unsigned long long DWORD_PTR;
typedef void *HANDLE, *LPVOID;
typedef union {
    long long QuadPart;
} LARGE_INTEGER;
typedef struct {
    DWORD Offset, OffsetHigh;
    HANDLE hEvent;
} OVERLAPPED;
typedef struct {
    DWORD dwNumberOfProcessors;
} SYSTEM_INFO;
typedef struct {
    void *Ptr;
} SRWLOCK, CONDITION_VARIABLE;
enum { MB_ERR_INVALID_CHARS = 8, FILE_ATTRIBUTE_DIRECTORY = 16, FILE_ATTRIBUTE_NORMAL = 128 };
enum { FILE_SHARE_READ = 1, FILE_SHARE_WRITE, FILE_SHARE_DELETE = 4, OPEN_EXISTING = 3 };
enum { FILE_TYPE_DISK = 1, PAGE_READONLY, FILE_MAP_READ = 4 };
enum { ERROR_FILE_NOT_FOUND = 2, ERROR_PATH_NOT_FOUND, ERROR_TOO_MANY_OPEN_FILES,
       ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION = 32, ERROR_HANDLE_EOF = 38,
       ERROR_BAD_NETPATH = 53, ERROR_INSUFFICIENT_BUFFER = 122, ERROR_INVALID_NAME,
       ERROR_FILENAME_EXCED_RANGE = 206, ERROR_NO_UNICODE_TRANSLATION = 1113 };
#define GENERIC_READ 0x80000000ul
#define INFINITE 0xfffffffful
#define INVALID_FILE_ATTRIBUTES 0xfffffffful
#define INVALID_HANDLE_VALUE ((HANDLE)-1)
BOOL QueryPerformanceFrequency(LARGE_INTEGER *ticks);
BOOL QueryPerformanceCounter(LARGE_INTEGER *ticks);
void Sleep(DWORD ms);
int MultiByteToWideChar(unsigned page, DWORD flags, const char *from, int n, wchar_t *to, int room);
DWORD GetLastError(void);
DWORD GetFileAttributesW(const wchar_t *path);
HANDLE CreateFileW(const wchar_t *path, DWORD access, DWORD share, void *security, DWORD how,
                   DWORD flags, HANDLE like);
DWORD GetFileType(HANDLE file);
BOOL GetFileSizeEx(HANDLE file, LARGE_INTEGER *size);
BOOL CloseHandle(HANDLE handle);
BOOL ReadFile(HANDLE file, LPVOID buffer, DWORD size, DWORD *got, OVERLAPPED *at);
HANDLE CreateFileMappingW(HANDLE file, void *security, DWORD protection, DWORD high, DWORD low,
                          const wchar_t *name);
LPVOID MapViewOfFile(HANDLE mapping, DWORD access, DWORD high, DWORD low, size_t size);
BOOL UnmapViewOfFile(const void *map);
void InitializeSRWLock(SRWLOCK *lock);
void AcquireSRWLockExclusive(SRWLOCK *lock);
void ReleaseSRWLockExclusive(SRWLOCK *lock);
void InitializeConditionVariable(CONDITION_VARIABLE *condition);
void WakeAllConditionVariable(CONDITION_VARIABLE *condition);
BOOL SleepConditionVariableSRW(CONDITION_VARIABLE *condition, SRWLOCK *lock, DWORD ms, DWORD flags);
HANDLE CreateThread(void *security, size_t stack, DWORD (*start)(LPVOID), LPVOID argument,
                    DWORD flags, DWORD *id);
DWORD WaitForSingleObject(HANDLE handle, DWORD ms);
HANDLE GetCurrentProcess(void);
BOOL GetProcessAffinityMask(HANDLE process, DWORD_PTR *ours, DWORD_PTR *all);
void GetSystemInfo(SYSTEM_INFO *info);
BOOL IsProcessorFeaturePresent(DWORD feature);
