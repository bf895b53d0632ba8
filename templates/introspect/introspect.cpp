#include "templates/introspect/introspect.h"

#include <clang/AST/ASTConsumer.h>
#include <clang/AST/ASTContext.h>
#include <clang/AST/Attr.h>
#include <clang/AST/DeclCXX.h>
#include <clang/AST/RawCommentList.h>
#include <clang/AST/RecursiveASTVisitor.h>
#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/FileManager.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Lex/PPCallbacks.h>
#include <clang/Lex/Preprocessor.h>
#include <fmt/format.h>
#include <llvm/Support/VirtualFileSystem.h>

#include <algorithm>
#include <set>

#include "templates/introspect/editor_header.h"

namespace tilewright::templates {
namespace {

constexpr const char* kEditorHeader = "device/editor.cuh";
/// Where the virtual files live; it never shows in a message.
constexpr std::string_view kRoot = "/tilewright/";

std::string without_root(llvm::StringRef path) {
  std::string_view name(path.data(), path.size());
  if (name.starts_with(kRoot)) name.remove_prefix(kRoot.size());
  while (name.starts_with("./")) name.remove_prefix(2);
  return std::string(name);
}

/// Keeps errors and the notes that belong to them.
class Errors : public clang::DiagnosticConsumer {
 public:
  std::string first, all;

  void HandleDiagnostic(clang::DiagnosticsEngine::Level level,
                        const clang::Diagnostic& diagnostic) override {
    using Level = clang::DiagnosticsEngine::Level;
    clang::DiagnosticConsumer::HandleDiagnostic(level, diagnostic);
    const bool error = level >= Level::Error;
    if (!error && (level != Level::Note || all.empty())) return;
    llvm::SmallString<256> text;
    diagnostic.FormatDiagnostic(text);
    std::string place;
    if (diagnostic.hasSourceManager() && diagnostic.getLocation().isValid()) {
      const clang::SourceManager& sources = diagnostic.getSourceManager();
      const auto at = sources.getPresumedLoc(sources.getExpansionLoc(diagnostic.getLocation()));
      if (at.isValid())
        place = fmt::format("{}:{}: ", without_root(at.getFilename()), at.getLine());
    }
    const std::string message = place + text.c_str();
    if (error && first.empty()) first = message;
    all += fmt::format("{}{}\n", error ? "" : "  ", message);
  }
};

/// Collects the names of included files.
class Includes : public clang::PPCallbacks {
 public:
  explicit Includes(std::set<std::string>& names) : names_(names) {}

  void InclusionDirective(clang::SourceLocation, const clang::Token&, llvm::StringRef, bool,
                          clang::CharSourceRange, clang::OptionalFileEntryRef file, llvm::StringRef,
                          llvm::StringRef, const clang::Module*, bool,
                          clang::SrcMgr::CharacteristicKind) override {
    if (!file) return;  // an error of its own
    std::string name = without_root(file->getName());
    if (name != kEditorHeader) names_.insert(std::move(name));
  }

 private:
  std::set<std::string>& names_;
};

/// Reads the declarations of the main file.
class Reader : public clang::RecursiveASTVisitor<Reader> {
 public:
  Reader(clang::ASTContext& context, Description& out) : context_(context), out_(out) {}

  std::optional<Error> error;

  bool VisitCXXRecordDecl(clang::CXXRecordDecl* record) {
    if (record->getName() == "Config" && record->isCompleteDefinition() && in_main_file(record))
      read_config(*record);
    return !error;
  }

  bool VisitFunctionDecl(clang::FunctionDecl* function) {
    if (!function->hasAttr<clang::CUDAGlobalAttr>() || !function->isExternC() ||
        !in_main_file(function) || !function->isFirstDecl())
      return true;
    KernelDeclaration kernel;
    kernel.name = function->getNameAsString();
    kernel.line = line_of(function->getLocation());
    for (const clang::ParmVarDecl* parameter : function->parameters())
      kernel.parameters.push_back({parameter->getType().getAsString(context_.getPrintingPolicy()),
                                   parameter->getNameAsString()});
    out_.kernels.push_back(std::move(kernel));
    return true;
  }

 private:
  bool in_main_file(const clang::Decl* decl) const {
    const clang::SourceManager& sources = context_.getSourceManager();
    return sources.isInMainFile(sources.getExpansionLoc(decl->getLocation()));
  }
  int line_of(clang::SourceLocation at) const {
    return static_cast<int>(context_.getSourceManager().getExpansionLineNumber(at));
  }
  void refuse(const clang::FieldDecl& field, std::string_view why) {
    const auto at = context_.getSourceManager().getPresumedLoc(field.getLocation());
    error = Error{ErrorCode::kUnsupported,
                  fmt::format("{}:{}: tunable '{}' {}", without_root(at.getFilename()),
                              at.getLine(), field.getNameAsString(), why),
                  {}};
  }

  void read_config(const clang::CXXRecordDecl& record) {
    if (!out_.config.empty()) {
      error = Error{ErrorCode::kUnsupported,
                    fmt::format("two Config structs, {} and {}, expected one", out_.config,
                                record.getQualifiedNameAsString()),
                    {}};
      return;
    }
    out_.config = record.getQualifiedNameAsString();
    for (const clang::FieldDecl* field : record.fields()) {
      Tunable tunable;
      tunable.name = field->getNameAsString();
      tunable.type = field->getType().getAsString(context_.getPrintingPolicy());
      tunable.line = line_of(field->getLocation());
      if (!field->getType()->isIntegralOrEnumerationType())
        return refuse(*field,
                      fmt::format("is {}, expected an integer, bool or enum", tunable.type));
      const clang::Expr* initializer = field->getInClassInitializer();
      clang::Expr::EvalResult value;
      if (!initializer || initializer->isValueDependent() ||
          !initializer->EvaluateAsInt(value, context_))
        return refuse(*field, "has no constant default, expected one");
      tunable.default_value = value.Val.getInt().getExtValue();
      tunable.comment = comment_of(*field);
      out_.tunables.push_back(std::move(tunable));
    }
  }

  /// On one line.
  std::string comment_of(const clang::Decl& decl) const {
    const clang::RawComment* comment = context_.getRawCommentForDeclNoCache(&decl);
    if (!comment) return {};
    const std::string text =
        comment->getFormattedText(context_.getSourceManager(), context_.getDiagnostics());
    std::string line;
    for (char c : text) {
      const bool blank = c == '\n' || c == ' ' || c == '\t';
      if (blank && (line.empty() || line.back() == ' ')) continue;
      line += blank ? ' ' : c;
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line;
  }

  clang::ASTContext& context_;
  Description& out_;
};

struct Findings {
  Description* description = nullptr;  ///< null: nothing is read, only checked
  std::set<std::string> includes;
  std::optional<Error> error;
};

class Consumer : public clang::ASTConsumer {
 public:
  explicit Consumer(Findings& findings) : findings_(findings) {}
  void HandleTranslationUnit(clang::ASTContext& context) override {
    if (!findings_.description || context.getDiagnostics().hasErrorOccurred()) return;
    Reader reader(context, *findings_.description);
    reader.TraverseDecl(context.getTranslationUnitDecl());
    findings_.error = std::move(reader.error);
  }

 private:
  Findings& findings_;
};

class Action : public clang::ASTFrontendAction {
 public:
  explicit Action(Findings& findings) : findings_(findings) {}
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& compiler,
                                                        llvm::StringRef) override {
    compiler.getPreprocessor().addPPCallbacks(std::make_unique<Includes>(findings_.includes));
    return std::make_unique<Consumer>(findings_);
  }

 private:
  Findings& findings_;
};

/// Parses `text` as the file `name` beside the headers.
Result<void> parse(const jit::HeaderSet& headers, const std::string& name, const std::string& text,
                   Findings& findings) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  auto add = [&](const std::string& file, const std::string& content) {
    files->addFile(
        std::string(kRoot) + file, 0,
        llvm::MemoryBuffer::getMemBuffer(content, file, /*RequiresNullTerminator=*/true));
  };
  add(name, text);
  for (const auto& [header, content] : headers)
    if (header != name) add(header, content);

  const std::string main_file = std::string(kRoot) + name;
  const std::string root(kRoot);
  // clang-format off
  std::vector<const char*> arguments = {
      // device code, whose target only decides about builtins, constraints of asm and __CUDA_ARCH__
      "-triple", "nvptx64-nvidia-cuda", "-aux-triple", "x86_64-pc-linux-gnu",
      "-target-cpu", "sm_90", "-target-feature", "+ptx80", "-fcuda-is-device",
      // the language, and nothing of the machine that we run on
      "-std=c++20", "-nostdsysteminc", "-nobuiltininc", "-I", root.c_str(),
      // errors only, and no guesses at what was meant
      "-fsyntax-only", "-w", "-ferror-limit", "8", "-fno-spell-checking"};
  // clang-format on
  const std::string editor = root + kEditorHeader;
  if (name != kEditorHeader) arguments.insert(arguments.end(), {"-include", editor.c_str()});
  arguments.insert(arguments.end(), {"-x", "cuda", main_file.c_str()});

  Errors errors;
  auto diagnostics = clang::CompilerInstance::createDiagnostics(new clang::DiagnosticOptions(),
                                                                &errors, /*ShouldOwnClient=*/false);
  clang::CompilerInstance compiler;
  compiler.setDiagnostics(diagnostics.get());
  if (!clang::CompilerInvocation::CreateFromArgs(compiler.getInvocation(), arguments, *diagnostics))
    return fail(ErrorCode::kInternal, "clang refuses our arguments: " + errors.first, errors.all);
  compiler.getFrontendOpts().DisableFree = false;
  compiler.getDiagnosticOpts().ShowCarets = false;  // and no summary on standard error
  compiler.createFileManager(files);
  compiler.createSourceManager(compiler.getFileManager());
  Action action(findings);
  compiler.ExecuteAction(action);
  if (!errors.first.empty()) return fail(ErrorCode::kCompile, errors.first, errors.all);
  if (findings.error) return fail(std::move(*findings.error));
  return {};
}

}  // namespace

struct Introspector::State {
  jit::HeaderSet headers;
};

Introspector::Introspector(jit::HeaderSet headers)
    : state_(std::make_unique<State>(State{std::move(headers)})) {
  state_->headers.emplace(kEditorHeader, kEditorHeaderText);
}
Introspector::Introspector(Introspector&&) noexcept = default;
Introspector& Introspector::operator=(Introspector&&) noexcept = default;
Introspector::~Introspector() = default;

Result<Description> Introspector::describe(const std::string& header) const {
  auto found = state_->headers.find(header);
  if (found == state_->headers.end())
    return fail(ErrorCode::kNotFound, fmt::format("no device header '{}'", header));
  Description description;
  Findings findings{&description, {}, {}};
  TILEWRIGHT_TRY(parse(state_->headers, header, found->second, findings));
  description.includes.assign(findings.includes.begin(), findings.includes.end());
  return description;
}

Result<void> Introspector::check(const jit::Source& source) const {
  Findings findings;
  return parse(state_->headers, source.name, source.text, findings);
}

}  // namespace tilewright::templates
