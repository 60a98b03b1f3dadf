#ifndef ERRNO_H
#define ERRNO_H
extern int errno_here;
#define errno errno_here
enum { ENOENT = 2, EINTR = 4, EACCES = 13, ENOTDIR = 20, ENFILE, EMFILE, ENAMETOOLONG, EOVERFLOW };
#endif
