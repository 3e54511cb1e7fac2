// tests/emulator/nvrtc.cpp -- A libnvrtc that compiles CUDA C++ for the emulated device.
//
// The host compiler stands in for NVIDIA's: the source is preprocessed with the emulator's CUDA
// language in front, each kernel found in it gets a descriptor, and the shared object that results
// is marked as a CUDA ELF. Signatures are those of generator/nvrtc_api.h.
//
// Many tests need the same kernels. Those of one run share what they compile, in the folder
// `kernels` of the device, if it is there; VITUNE_EMULATED_KERNELS names another, or none if it is
// empty. The environment does not reach the compile workers, which know of a few variables alone.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/digest.h"

extern char** environ;  // the compiler's environment is that of this process

namespace {

namespace fs = std::filesystem;

constexpr int kSuccess = 0, kCompilation = 6, kInternal = 11;
constexpr std::size_t kMachineOffset = 18;  // e_machine of an ELF header
constexpr char kCudaMachine = static_cast<char>(190);

struct Program {
  std::string source, log, image;
  std::map<std::string, std::string> headers;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// Runs the host compiler; its messages go to `log`. Whether it succeeded.
bool run_compiler(std::vector<std::string> arguments, const fs::path& log) {
  arguments.insert(arguments.begin(), VITUNE_HOST_COMPILER);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct KernelText {
  std::string name, cluster;  // CTAs of a cluster along x
};

std::vector<KernelText> kernels_of(const std::string& preprocessed) {
  static const std::regex kKernel(
      R"(VITUNE_GLOBAL_MARK\s+void\s+(?:__cluster_dims__\((\d+)[^)]*\)\s*)?(\w+)\s*\()");
  std::vector<KernelText> kernels;
  for (std::sregex_iterator it(preprocessed.begin(), preprocessed.end(), kKernel), end; it != end;
       ++it)
    kernels.push_back({(*it)[2], (*it)[1].matched ? std::string((*it)[1]) : "1"});
  return kernels;
}

// Stands for ptxas' report: there are no registers here, so a harmless number.
std::string resource_report(const std::vector<KernelText>& kernels) {
  std::string log;
  for (const auto& [name, cluster] : kernels) {
    log +=
        "ptxas info    : Compiling entry function '" + name +
        "' for the emulated device\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill "
        "loads\nptxas info    : Used 64 registers, used 1 barriers\n";
  }
  return log;
}

constexpr const char* kModuleOptions[] = {"-std=c++20",
                                          "-O1",
                                          "-g0",
                                          "-w",
                                          "-fPIC",
                                          "-shared",
                                          "-fvisibility=hidden",
                                          "-fno-gnu-unique",
                                          "-fno-strict-aliasing",
                                          "-Wl,-Bsymbolic",
                                          "-s"};

// A module of the text that `folder` has room for; empty if it does not compile.
std::string module_of(const fs::path& text, const fs::path& folder, const fs::path& log) {
  const fs::path object = folder / "kernel.so";
  std::vector<std::string> arguments(std::begin(kModuleOptions), std::end(kModuleOptions));
  arguments.insert(arguments.end(), {text.string(), "-o", object.string()});
  return run_compiler(std::move(arguments), log) ? read_file(object) : std::string();
}

// The folder in which modules are kept; empty if there is none.
fs::path kept_modules() {
  if (const char* const named = std::getenv("VITUNE_EMULATED_KERNELS")) return named;
  Dl_info here;
  if (dladdr(&kCudaMachine, &here) == 0) return {};
  const fs::path folder = fs::absolute(here.dli_fname).parent_path().parent_path() / "kernels";
  std::error_code ignored;
  return fs::is_directory(folder, ignored) ? folder : fs::path();
}

// Where the module of this text is kept for the tests of this run; empty if nothing is kept.
fs::path kept_module(const std::string& text) {
  const fs::path folder = kept_modules();
  if (folder.empty()) return {};
  std::string whole = VITUNE_HOST_COMPILER;
  for (const char* const option : kModuleOptions) whole += std::string(" ") + option;
  return folder / vitune::sha256(whole + "\n" + text).hex();
}

// Others see the whole file or none.
void keep_module(const std::string& image, const fs::path& at, const fs::path& folder) {
  std::error_code ignored;
  const fs::path part = at.string() + "." + folder.filename().string();
  fs::create_directories(at.parent_path(), ignored);
  if (!(std::ofstream(part, std::ios::binary) << image).flush()) return;
  fs::rename(part, at, ignored);
}

int compile(Program& program, const fs::path& folder) {
  const fs::path main = folder / "kernel.cu", pre = folder / "kernel.ii", log = folder / "log",
                 headers = folder / "headers";
  write_file(main, program.source);
  for (const auto& [name, text] : program.headers) write_file(headers / name, text);
  const std::string emulator = VITUNE_EMULATOR_DIR;
  if (!run_compiler(
          {"-std=c++20", "-nostdinc++", "-E", "-P", "-w", "-D__global__=VITUNE_GLOBAL_MARK",
           "-D__shared__=VITUNE_SHARED_MARK", "-include", emulator + "/cuda_language.h", "-I",
           emulator, "-I", headers.string(), "-x", "c++", main.string(), "-o", pre.string()},
          log)) {
    program.log = read_file(log);
    return kCompilation;
  }
  std::string text = read_file(pre);
  const std::vector<KernelText> kernels = kernels_of(text);
  // Dynamic shared memory is declared extern and defined by module_end.h; the rest is static.
  text = std::regex_replace(text, std::regex(R"(extern\s+VITUNE_SHARED_MARK)"), "extern");
  text =
      "#define VITUNE_GLOBAL_MARK\n#define VITUNE_SHARED_MARK static\n#define "
      "__cluster_dims__(...)\n" +
      text + "\n" + read_file(emulator + "/module_end.h");
  for (const auto& [name, cluster] : kernels) {
    text += "VITUNE_EXPORT_KERNEL(" + name + ", " + cluster + ")\n";
  }
  const fs::path kept = kept_module(text);
  program.image = kept.empty() ? "" : read_file(kept);
  if (program.image.empty()) {
    write_file(folder / "whole.cpp", text);
    program.image = module_of(folder / "whole.cpp", folder, log);
    if (program.image.empty()) {
      program.log = read_file(log);
      return kCompilation;
    }
    if (!kept.empty()) keep_module(program.image, kept, folder);
  }
  if (program.image.size() < 64) return kInternal;
  program.image[kMachineOffset] = kCudaMachine;
  program.image[kMachineOffset + 1] = 0;
  program.log = resource_report(kernels);
  return kSuccess;
}

int copy_text(const std::string& text, char* out) {
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 12;
  *minor = 8;
  return kSuccess;
}
int nvrtcCreateProgram(Program** program, const char* source, const char*, int count,
                       const char* const* texts, const char* const* names) {
  *program = new Program{source, {}, {}, {}};
  for (int i = 0; i < count; ++i) (*program)->headers[names[i]] = texts[i];
  return kSuccess;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}
int nvrtcCompileProgram(Program* program, int, const char* const*) {
  std::string name = (fs::temp_directory_path() / "vitune-emulator-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return kInternal;
  const int result = compile(*program, name);
  std::error_code ignored;
  fs::remove_all(name, ignored);
  return result;
}
int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  *size = program->image.size();
  return kSuccess;
}
int nvrtcGetCUBIN(Program* program, char* image) {
  std::memcpy(image, program->image.data(), program->image.size());
  return kSuccess;
}
int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  *size = program->log.size() + 1;
  return kSuccess;
}
int nvrtcGetProgramLog(Program* program, char* log) { return copy_text(program->log, log); }
const char* nvrtcGetErrorString(int result) {
  return result == kCompilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INTERNAL_ERROR";
}

}  // extern "C"
