// Linking: PTX texts become one. Declarations of what another text defines go, texts that define come
// before those that use, and the result is a text that cuModuleLoadData takes.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "jit/virtual_gpu/driver/function.h"
#include "jit/virtual_gpu/driver/state.h"

using namespace tilewright;
using vgpu::enter;
using vgpu::Needs;

struct CUlinkState_st {
  std::vector<std::string> texts;
  std::string image;
};

namespace {

struct Statement {
  std::size_t begin = 0, end = 0;
  std::string name;
};

/// The name that a declaration or a definition gives: of a function the word before its parameters,
/// behind the result's if there is one; of a variable the last word.
std::string name_in(std::string text) {
  text = text.substr(0, text.find_first_of("{;="));
  if (auto at = text.find(".func"); at != std::string::npos) {
    text = text.substr(at + 5);
    text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (!text.empty() && text[0] == '(')
      text = text.substr(std::min(text.find(')') + 1, text.size()));
    text = text.substr(0, text.find('('));
  } else {
    text = text.substr(0, text.find('['));
  }
  const auto last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos) return "";
  const auto before = text.find_last_of(" \t\r\n", last);
  return text.substr(before + 1, last - before);
}

/// Statements that begin with `word` at the start of a line. A body is not a part of them.
std::vector<Statement> statements(const std::string& text, const std::string& word) {
  std::vector<Statement> out;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    std::size_t end = text.find_first_of(";{", at);
    if (end == std::string::npos) break;
    out.push_back({at, end + 1, name_in(text.substr(at, end + 1 - at))});
  }
  return out;
}

/// Takes the directive's line out of the text; returns what it says.
std::string take_directive(std::string& text, const std::string& name) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string value = text.substr(at + name.size(), end - at - name.size());
    text.erase(at, end - at);
    value.erase(0, std::min(value.find_first_not_of(" \t"), value.size()));
    return value;
  }
  return "";
}

/// Empty, with a reason: it cannot be linked.
std::string link(std::vector<std::string> texts, std::string* why) {
  std::string version, target;
  std::map<std::string, std::size_t> owner;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string own_version = take_directive(texts[i], ".version");
    const std::string own_target = take_directive(texts[i], ".target");
    take_directive(texts[i], ".address_size");
    if (own_version.empty() || own_target.empty()) {
      *why = "input " + std::to_string(i + 1) + " is no PTX: expected .version and .target";
      return "";
    }
    // "8.0" < "9.4": versions have one digit each side; of targets the newest that any asks for.
    version = std::max(version, own_version);
    if (target.size() < own_target.size() ||
        (target.size() == own_target.size() && target < own_target))
      target = own_target;
    for (const Statement& defined : statements(texts[i], ".visible")) {
      auto [at, fresh] = owner.emplace(defined.name, i);
      if (!fresh && at->second != i) {
        *why = "inputs " + std::to_string(at->second + 1) + " and " + std::to_string(i + 1) +
               " both define '" + defined.name + "'";
        return "";
      }
    }
  }
  std::vector<std::vector<std::size_t>> needs(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto declared = statements(texts[i], ".extern");
    for (auto one = declared.rbegin(); one != declared.rend(); ++one) {
      auto defined = owner.find(one->name);
      if (defined == owner.end() || defined->second == i) continue;
      needs[i].push_back(defined->second);
      texts[i].erase(one->begin, one->end - one->begin);
    }
  }
  std::string out = ".version " + version + "\n.target " + target + "\n.address_size 64\n";
  std::vector<bool> placed(texts.size());
  for (std::size_t left = texts.size(); left > 0; --left) {
    std::size_t next = 0;
    auto ready = [&](std::size_t i) {
      return !placed[i] && std::all_of(needs[i].begin(), needs[i].end(),
                                       [&](std::size_t before) { return placed[before]; });
    };
    while (next < texts.size() && !ready(next)) ++next;
    if (next == texts.size()) {
      *why = "inputs use each other's definitions in a circle, which is not built";
      return "";
    }
    placed[next] = true;
    out += texts[next] + "\n";
  }
  return out;
}

CUresult add(CUlinkState state, CUjitInputType type, std::string text) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!state) return CUDA_ERROR_INVALID_HANDLE;
    if (type != CU_JIT_INPUT_PTX) {
      gpu.explain(
          "the input is machine code, expected PTX text: the virtual GPU executes PTX only");
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    state->texts.push_back(std::move(text));
    return CUDA_SUCCESS;
  });
}

}  // namespace

VGPU_API cuLinkCreate(unsigned int, CUjit_option*, void**, CUlinkState* out) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu&, CUctx_st&) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = new CUlinkState_st;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t bytes,
                       const char*, unsigned int, CUjit_option*, void**) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_JIT_INPUT_FATBINARY) {
    std::string text;
    const CUresult wrong = enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
      return vgpu::text_of(gpu, data, &text);
    });
    return wrong ? wrong : add(state, CU_JIT_INPUT_PTX, std::move(text));
  }
  const char* text = static_cast<const char*>(data);
  return add(state, type, std::string(text, strnlen(text, bytes)));
}

VGPU_API cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned int,
                       CUjit_option*, void**) {
  if (!path) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream stream(path, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  if (!stream.good()) return CUDA_ERROR_FILE_NOT_FOUND;
  return add(state, type, content.str());
}

VGPU_API cuLinkComplete(CUlinkState state, void** image, size_t* bytes) {
  return enter(Needs::kHealthyContext, [&](vgpu::Gpu& gpu, CUctx_st&) {
    if (!state || !image) return CUDA_ERROR_INVALID_VALUE;
    std::string why;
    state->image = link(state->texts, &why);
    if (state->image.empty()) {
      gpu.explain(why.empty() ? "nothing was given to be linked" : why);
      return CUDA_ERROR_INVALID_PTX;
    }
    *image = state->image.data();
    if (bytes) *bytes = state->image.size() + 1;
    return CUDA_SUCCESS;
  });
}

VGPU_API cuLinkDestroy(CUlinkState state) {
  return enter(Needs::kInitialised, [&](vgpu::Gpu&, CUctx_st&) {
    if (!state) return CUDA_ERROR_INVALID_HANDLE;
    delete state;
    return CUDA_SUCCESS;
  });
}
