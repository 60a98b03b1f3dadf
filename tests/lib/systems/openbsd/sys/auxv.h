#define AT_HWCAP 25
#define AT_HWCAP2 26
int elf_aux_info(int which, void *buffer, int size);
