#include "templates/introspect/description.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tilewright::templates {

using nlohmann::json;

const Tunable* Description::find(std::string_view tunable) const {
  for (const Tunable& candidate : tunables)
    if (candidate.name == tunable) return &candidate;
  return nullptr;
}

std::string to_json(const Description& description) {
  json tunables = json::array(), kernels = json::array();
  for (const Tunable& tunable : description.tunables)
    tunables.push_back({{"name", tunable.name},
                        {"type", tunable.type},
                        {"default", tunable.default_value},
                        {"comment", tunable.comment},
                        {"line", tunable.line}});
  for (const KernelDeclaration& kernel : description.kernels) {
    json parameters = json::array();
    for (const KernelParameter& parameter : kernel.parameters)
      parameters.push_back({{"type", parameter.type}, {"name", parameter.name}});
    kernels.push_back({{"name", kernel.name}, {"parameters", parameters}, {"line", kernel.line}});
  }
  return json{{"config", description.config},
              {"tunables", tunables},
              {"kernels", kernels},
              {"includes", description.includes}}
      .dump();
}

Result<Description> description_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    Description description;
    description.config = object.at("config");
    for (const json& tunable : object.at("tunables"))
      description.tunables.push_back({tunable.at("name"), tunable.at("type"), tunable.at("default"),
                                      tunable.at("comment"), tunable.at("line")});
    for (const json& kernel : object.at("kernels")) {
      KernelDeclaration& added = description.kernels.emplace_back();
      added.name = kernel.at("name");
      added.line = kernel.at("line");
      for (const json& parameter : kernel.at("parameters"))
        added.parameters.push_back({parameter.at("type"), parameter.at("name")});
    }
    description.includes = object.at("includes").get<std::vector<std::string>>();
    return description;
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("description of a template: {}", error.what()));
  }
}

}  // namespace tilewright::templates
