/// The `body` of an operator file: calls become statements, nested ones with names of their own.
#pragma once

#include "templates/operator/parse_scope.h"

namespace tilewright::templates {

/// Appends the statements to `op`, whose inputs are there. Errors name file and line.
Result<void> parse_body(const YAML::Node& body, Scope& scope, Operator& op);

}  // namespace tilewright::templates
