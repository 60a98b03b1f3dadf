struct stat {
    unsigned short st_mode;
    long long st_size;
};
#define S_ISREG(mode) (((mode) & 0170000) == 0100000)
#define S_ISDIR(mode) (((mode) & 0170000) == 0040000)
int fstat(int file, struct stat *info);
