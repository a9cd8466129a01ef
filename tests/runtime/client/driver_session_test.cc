#include "runtime/client/driver_session.h"

#include "gtest/gtest.h"

namespace miniray {
namespace internal {
namespace {

v1::ProcessOutput Output(const std::string& text, int64_t dropped = 0) {
  v1::ProcessOutput output;
  output.set_class_name("Counter");
  output.set_actor_id("actor-1");
  output.set_pid(123);
  output.set_hostname("host");
  output.set_text(text);
  output.set_dropped_lines(dropped);
  return output;
}

TEST(FormatOutputTest, EveryLineSaysWhoPrintedIt) {
  EXPECT_EQ(FormatOutput(Output("one\ntwo\n")),
            "(Counter pid=123 node=host) one\n"
            "(Counter pid=123 node=host) two\n");
  EXPECT_EQ(FormatOutput(Output("one\n\n")),
            "(Counter pid=123 node=host) one\n"
            "(Counter pid=123 node=host) \n");
}

TEST(FormatOutputTest, ALastLineWithoutEndGetsOne) {
  EXPECT_EQ(FormatOutput(Output("half")), "(Counter pid=123 node=host) half\n");
  EXPECT_EQ(FormatOutput(Output("")), "");
}

TEST(FormatOutputTest, SaysWhatIsMissing) {
  EXPECT_EQ(FormatOutput(Output("x\n", 7)),
            "(Counter pid=123 node=host) [7 lines came too fast to be shown; "
            "see: miniray logs actor-1]\n"
            "(Counter pid=123 node=host) x\n");
}

TEST(FormatOutputTest, WhateverBytesAnActorPrints) {
  EXPECT_EQ(FormatOutput(Output(std::string("\xff\0x\n", 4))),
            std::string("(Counter pid=123 node=host) \xff\0x\n", 32));
}

}  // namespace
}  // namespace internal
}  // namespace miniray
