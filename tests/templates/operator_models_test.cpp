// The model files: every operator that one lists exists and takes the parameters that it is given.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <set>

#include "templates/operator/parse.h"

namespace tilewright::templates {
namespace {

TEST(ModelFiles, ListOperatorsThatExistWithParametersThatTheyTake) {
  std::filesystem::path configs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(configs / "models")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++files;
    YAML::Node model = YAML::LoadFile(entry.path().string());
    EXPECT_EQ(model["model"].as<std::string>(), entry.path().stem().string());
    for (const YAML::Node& source : model["sources"]) {
      EXPECT_EQ(source["commit"].as<std::string>().size(), 40u);
    }
    ASSERT_GT(model["operators"].size(), 0u);
    for (const YAML::Node& item : model["operators"]) {
      Overrides overrides;
      for (const auto& parameter : item["parameters"]) {
        overrides[parameter.first.Scalar()] = parameter.second.Scalar();
      }
      std::string name = item["operator"].as<std::string>();
      auto op = load_operator(configs / "operators" / (name + ".yaml"), overrides);
      EXPECT_TRUE(op) << op.error().message;
      EXPECT_GT(item["count"].as<int>(), 0);
      for (const char* rule : {"divides", "divides_heads"}) {
        if (!item["tp"] || !item["tp"][rule]) continue;
        for (const YAML::Node& divided : item["tp"][rule]) {
          EXPECT_EQ(overrides.count(divided.Scalar()), 1u) << divided.Scalar();
        }
      }
    }
  }
  EXPECT_EQ(files, 27);
}

// A weight is the matrix of one of the model's gemms; two matrices may be one operator's.
TEST(ModelFiles, EveryLinearHasTheSizesOfAGemmOfItsModel) {
  std::filesystem::path configs = std::filesystem::path(TILEWRIGHT_SOURCE_DIR) / "configs";
  int linears = 0;
  for (const auto& entry : std::filesystem::directory_iterator(configs / "models")) {
    YAML::Node model = YAML::LoadFile(entry.path().string());
    std::set<std::pair<std::string, std::string>> gemms;
    for (const YAML::Node& gemm : model["gemms"])
      gemms.emplace(gemm["n"].Scalar(), gemm["k"].Scalar());
    for (const YAML::Node& item : model["operators"]) {
      if (item["operator"].Scalar() != "linear") continue;
      ++linears;
      EXPECT_TRUE(item["name"]) << entry.path();
      EXPECT_EQ(gemms.count({item["parameters"]["N"].Scalar(), item["parameters"]["K"].Scalar()}),
                1u)
          << entry.path() << ": " << item["name"].Scalar();
    }
  }
  EXPECT_GE(linears, 100);
}

}  // namespace
}  // namespace tilewright::templates
