// app.cpp - app.c in C++.
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "whisper_npu.h"

namespace {

struct closer {
    void operator()(wnpu_model *model) const { wnpu_model_close(model); }
    void operator()(wnpu_session *session) const { wnpu_session_close(session); }
};

std::int64_t append(void *user, const void *data, std::size_t size)
{
    static_cast<std::string *>(user)->append(static_cast<const char *>(data), size);
    return static_cast<std::int64_t>(size);
}

int fail(const wnpu_error &error)
{
    std::cerr << error.message << '\n';
    return 1;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 1;
    }
    std::ifstream file(argv[2], std::ios::binary);
    const std::vector<char> wav((std::istreambuf_iterator<char>(file)),
                                std::istreambuf_iterator<char>());
    wnpu_error error = {0, ""};
    wnpu_model *opened = nullptr;
    if (wnpu_self_test(nullptr, &error) != WNPU_OK ||
        wnpu_model_open(&opened, argv[1], nullptr, &error) != WNPU_OK) {
        return fail(error);
    }
    const std::unique_ptr<wnpu_model, closer> model(opened);
    wnpu_config config;
    wnpu_config_init(&config, sizeof config);
    config.threads = 2;
    wnpu_session *began = nullptr;
    if (wnpu_session_open(&began, model.get(), &config, nullptr, 0, &error) != WNPU_OK) {
        return fail(error);
    }
    const std::unique_ptr<wnpu_session, closer> session(began);
    wnpu_audio audio;
    wnpu_audio_init(&audio, sizeof audio);
    if (wnpu_wav_open(&audio, wav.data(), wav.size(), &error) != WNPU_OK) {
        return fail(error);
    }
    wnpu_params params;
    wnpu_params_init(&params, sizeof params);
    params.vad = 0; /* noise is no speech */
    params.max_tokens = 8;
    params.temperature_step = 0.0f;
    std::string json;
    if (wnpu_transcribe(session.get(), &params, &audio) != WNPU_OK ||
        wnpu_write(session.get(), WNPU_FORMAT_JSON, append, &json) != WNPU_OK) {
        std::cerr << wnpu_session_error(session.get()) << '\n';
        return 1;
    }
    std::cout << json;
    return 0;
}
