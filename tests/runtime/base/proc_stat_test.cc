#include "runtime/base/proc_stat.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ProcStatTest, FieldsBehindTheName) {
  EXPECT_THAT(ProcStatFields("42 (cat) S 1 42 0\n"),
              ElementsAre("S", "1", "42", "0"));
}

TEST(ProcStatTest, ANameMayHoldAnything) {
  EXPECT_THAT(ProcStatFields("42 (a) R 9 (b\n) S 1\n"), ElementsAre("S", "1"));
}

TEST(ProcStatTest, WhatIsNoneHasNoFields) {
  EXPECT_THAT(ProcStatFields(""), IsEmpty());
  EXPECT_THAT(ProcStatFields("cpu 1 2 3\n"), IsEmpty());
  EXPECT_THAT(ProcStatFields("42 (cat)"), IsEmpty());
}

}  // namespace
}  // namespace miniray
