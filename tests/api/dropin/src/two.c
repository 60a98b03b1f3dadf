/* two.c - a program of two modules, each of which brings its own renamed copy of whisper_npu. */
int one_hears(const char *model_path, const char *wav_path);
int other_hears(const char *model_path, const char *wav_path);

int main(int argc, char **argv)
{
    return argc != 3 || one_hears(argv[1], argv[2]) || other_hears(argv[1], argv[2]);
}
