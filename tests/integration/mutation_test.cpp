#include <gtest/gtest.h>
TEST(Mutation, Todo) {}
